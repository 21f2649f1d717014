import { describe, expect, test } from '@jest/globals'
import { lifecycleOf, type Step, Unavailable } from '../../src/index.js'
import { unavailable } from '../../src/kubernetes/api/answers.js'
import { type Duration, durationMs } from '../../src/time/index.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, thingOf, things, thingWith } from '../support/thing.js'

const DAY_MS = 86_400_000

describe('durations that no date can be reckoned with', () => {
  const database = useDatabase()

  test('100 years is the longest, in every unit', () => {
    expect(durationMs('36500d')).toBe(36_500 * DAY_MS)
    expect(durationMs('876000h')).toBe(36_500 * DAY_MS)
    for (const tooLong of ['36501d', '100000000d', '876001h', `${'9'.repeat(400)}ms`]) {
      expect(() => durationMs(tooLong)).toThrow(`expected a duration of at most 36500d (100 years), got "${tooLong}"`)
    }
  })

  test.each<[string, (step: Step<'Created', any>, tooLong: Duration) => unknown]>([
    ['wait', (step, tooLong) => step.wait('the moon', { for: tooLong })],
    [
      'Unavailable',
      (_step, tooLong) => {
        throw new Unavailable('the moon', { retryAfter: tooLong })
      },
    ],
  ])('a handler that gives one to %s: an attempt that says so, nothing is parked', async (_name, make) => {
    const backOff = { firstError: '10m', longestError: '10m' }
    const lifecycle = thingWith(async (_doc, step) => make(step, '100000000d') as never, thingOf({ backOff }))
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replicaOf(database.db, lifecycle).runOnce()
    const found = await things(database.db).findOne({ _id: 'a' })
    expect(found?.['progress'].error?.message).toMatch(/expected a duration of at most 36500d \(100 years\)/)
    expect(found?.['progress']).toMatchObject({ attempts: 1 })
    expect(found?.['lockedAt'].getTime()).toBeLessThan(Date.now() + DAY_MS)
  })

  test('a server that asks for one: after a day it is asked again', () => {
    const request = { cluster: 'main', verb: 'get', resource: 'pods' } as never
    expect(unavailable(request, 'busy', 1e15).retryAfterMs).toBe(DAY_MS)
    expect(unavailable(request, 'busy', 5_000).retryAfterMs).toBe(5_000)
  })

  test('a lifecycle refuses one in a deadline and in keepFor', () => {
    const phases = {
      Creating: { next: ['Gone'], deadline: { after: '100000000d', moveTo: 'Gone' } },
      Gone: { final: true, keepFor: '40000d' },
    } as const
    const define = () => lifecycleOf().define({ name: 'thing', collection: 'Thing', phases })
    expect(define).toThrow(/deadline\.after: expected a duration of at most 36500d/)
    expect(define).toThrow(/keepFor: expected a duration of at most 36500d/)
  })
})
