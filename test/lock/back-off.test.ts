import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { errorPauseMs, pauseMs, termsOf } from '../../src/lock/index.js'
import { serverPauseMs, waitedMs } from '../../src/lock/record/step-end.js'
import { useDatabase } from '../support/database.js'
import { ago, lockedCollection, put, read, TERMS } from './fixture.js'

const TABLE: [waitedMs: number, pauseMs: number][] = [
  [0, 1_000],
  [1_000, 1_000],
  [10_000, 1_000],
  [30_000, 3_000],
  [120_000, 12_000],
  [120_001, 30_000],
  [180_000, 30_000],
  [86_400_000, 30_000],
]

describe('the back-off of a waiting document', () => {
  test.each(TABLE)('waited %d ms -> sleeps %d ms (lockTimeout 30 s)', (waited, pause) => {
    expect(pauseMs(waited, termsOf(30_000))).toBe(pause)
  })

  test('is never longer than lockTimeout, so that a sleep lies where a lease does', () => {
    for (let waited = 0; waited < 200_000; waited += 777)
      expect(pauseMs(waited, termsOf(1_000))).toBeLessThanOrEqual(1_000)
    expect(pauseMs(119_000, termsOf(5_000))).toBe(5_000)
  })

  test('is never shorter than the tick, unless lockTimeout is', () => {
    expect(pauseMs(0, termsOf(30_000, { leastWaitMs: 5_000 }))).toBe(5_000)
    expect(pauseMs(49_000, termsOf(30_000, { leastWaitMs: 5_000 }))).toBe(5_000)
    expect(pauseMs(60_000, termsOf(30_000, { leastWaitMs: 5_000 }))).toBe(6_000)
    expect(pauseMs(0, termsOf(500))).toBe(500)
  })

  test('after errors: 1 s x 2^(n-1), at most 5 min, +-20 %', () => {
    const pauses = [1, 2, 3, 9, 10, 20].map((attempt) => errorPauseMs(attempt, 0.5))
    expect(pauses).toEqual([1_000, 2_000, 4_000, 256_000, 300_000, 300_000])
    expect(errorPauseMs(1, 0)).toBe(800)
    expect(errorPauseMs(20, 0.999999)).toBe(360_000)
    expect(errorPauseMs(0, 0.5)).toBe(1_000)
  })
})

describe('the back-off on the server', () => {
  const database = useDatabase()

  /** The waited time and the pause of a document, both from one command, so that they belong to one moment. */
  async function backOffOf(document: Document, terms = TERMS): Promise<{ waited: number; pause: number }> {
    const collection = await lockedCollection(database.db)
    await put(collection, { _id: 'a', ...document })
    await collection.updateOne({ _id: 'a' as never }, [
      { $set: { waited: waitedMs(terms), pause: serverPauseMs(terms) } },
    ])
    const { waited, pause } = await read(collection, 'a')
    return { waited: Number(waited), pause: Number(pause) }
  }

  test.each([0, 1_000, 10_000, 30_000, 118_000, 125_000, 180_000])(
    'waited %d ms: the same as the pure function',
    async (waitedBefore) => {
      const { waited, pause } = await backOffOf({ updatedAt: ago(waitedBefore) })
      expect(waited).toBeGreaterThanOrEqual(waitedBefore)
      expect(waited).toBeLessThan(waitedBefore + 60_000)
      expect(pause).toBe(pauseMs(waited, TERMS))
    },
  )

  const thirtySeconds = { progress: { since: ago(30_000) } }
  const cases: [string, Document][] = [
    ['missing', {}],
    ['a string', { updatedAt: 'yesterday' }],
    ['an array', { updatedAt: ['yesterday', 2] }],
    ['null', { updatedAt: null }],
    ['in the future', { updatedAt: new Date('2200-01-01') }],
    ['older than since', { updatedAt: ago(50_000) }],
  ]
  test.each(cases)('updatedAt %s and since 30 s ago: counts from since', async (_name, updatedAt) => {
    const { waited, pause } = await backOffOf({ ...thirtySeconds, ...updatedAt })
    expect(waited).toBeGreaterThanOrEqual(30_000)
    expect(waited).toBeLessThan(50_000)
    expect(pause).toBe(pauseMs(waited, TERMS))
  })

  test('counts from progress.at where that is the newest', async () => {
    const { waited } = await backOffOf({ updatedAt: ago(90_000), progress: { since: ago(80_000), at: ago(20_000) } })
    expect(waited).toBeGreaterThanOrEqual(20_000)
    expect(waited).toBeLessThan(80_000)
  })

  const dateless: [string, Document][] = [
    ['no date at all', {}],
    ['a progress of the owner', { progress: 'mine' }],
    ['dates of other types only', { updatedAt: 5, progress: { at: 'x', since: [] } }],
    ['dates in the future only', { updatedAt: new Date('2200-01-01'), progress: { at: new Date('2300-01-01') } }],
  ]
  test.each(dateless)('%s: waited 0, sleeps for a tick', async (_name, document) => {
    expect(await backOffOf(document)).toEqual({ waited: 0, pause: 1_000 })
  })

  test('a renamed progress is where since is read from', async () => {
    const terms = termsOf(30_000, { progress: '_phaselock' })
    const { waited } = await backOffOf({ progress: { since: ago(90_000) }, _phaselock: { since: ago(10_000) } }, terms)
    expect(waited).toBeLessThan(90_000)
  })
})
