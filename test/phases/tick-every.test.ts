import { describe, expect, test } from '@jest/globals'
import type { BoundLifecycle, Replica } from '../../src/index.js'
import { systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { recordingObserver, replicaOf, things, thingWith } from '../support/thing.js'

/** A busy machine. */
const PATIENTLY = { timeoutMs: 60_000 }

describe('a document that waits', () => {
  const database = useDatabase()
  const asks = (calls: number[]) =>
    thingWith(async (_doc, step) => {
      calls.push(systemClock.monotonicMs())
      return step.wait('the API')
    })
  async function running<T>(replica: Replica, use: () => Promise<T>): Promise<T> {
    await replica.start()
    try {
      return await use()
    } finally {
      await replica.stop()
    }
  }

  test('has its handler called no more often than a tick of one second calls it', async () => {
    const calls: number[] = []
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await running(replicaOf(database.db, asks(calls)), () => eventually(() => calls.length >= 4, PATIENTLY))
    for (let i = 1; i < calls.length; i++) expect(calls[i]! - calls[i - 1]!).toBeGreaterThan(950)
  })

  test('sleeps for tickEvery at least, and for as long as its handler says if that is shorter', async () => {
    const replica = replicaOf(
      database.db,
      thingWith(async (doc, step) => step.wait('the API', doc.n ? { for: '200ms' } : {})),
      { tickEvery: '3s' },
    )
    await things(database.db).insertMany([
      { _id: 'default', phase: 'Creating' },
      { _id: 'its own', phase: 'Creating', n: 1 },
    ])
    await replica.tick()
    await replica.idle()
    const slept = async (_id: string) => {
      const { resumeAt, history } = (await things(database.db).findOne({ _id }))!['progress']
      return resumeAt.getTime() - history.at(-1).at.getTime()
    }
    expect([await slept('default'), await slept('its own')]).toEqual([3_000, 200])
    await replica.stop()
  })

  test('goes on at once when it is woken', async () => {
    const calls: number[] = []
    const lifecycle = asks(calls) as BoundLifecycle
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    const replica = replicaOf(database.db, lifecycle, { tickEvery: '10s' })
    await replica.tick()
    await replica.idle()
    expect(await lifecycle.wake('a')).toBe('done')
    await replica.tick()
    await replica.idle()
    expect(calls).toHaveLength(2)
    await replica.stop()
  })
})

describe('tickEvery', () => {
  const database = useDatabase()

  test('is how often a replica ticks', async () => {
    const ticked: number[] = []
    const observer = { ...recordingObserver(), ticked: () => void ticked.push(systemClock.monotonicMs()) }
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
      {
        observer,
        tickEvery: '2s',
        doorbell: 'off',
      },
    )
    const startedMs = systemClock.monotonicMs()
    await replica.start()
    await eventually(() => ticked.length >= 2, PATIENTLY)
    await replica.stop()
    // Between any two ticks lies a whole span since the start, however late one of them comes.
    expect(ticked[1]! - startedMs).toBeGreaterThan(1_950)
  })
})
