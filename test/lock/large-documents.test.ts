import { describe, expect, test } from '@jest/globals'
import { useDatabase } from '../support/database.js'
import {
  again,
  blank,
  claimer,
  endOf,
  held,
  interrupted,
  LOCK_TIMEOUT_MS,
  lockedCollection,
  ManualClock,
  PHASE,
  read,
  verdictsOf,
  wait,
} from './fixture.js'

const database = useDatabase()

test('after a claim that took half a lease, large documents are claimed apart, few at a time, after all others', async () => {
  const collection = await lockedCollection(database.db)
  const clock = new ManualClock()
  let takesMs = LOCK_TIMEOUT_MS / 2
  const through = interrupted(collection, 'updateMany', { after: () => clock.advance(takesMs) })
  const { claims } = await claimer(through, { clock })
  const insert = (name: string, count: number, x = '') =>
    collection.insertMany(Array.from({ length: count }, (_, i) => ({ _id: `${name}${i}` as never, phase: PHASE, x })))
  await insert('first', 80)
  expect((await claims.claimBatch(PHASE, 80)).claimed).toHaveLength(80)

  takesMs = 0
  await insert('bad', 5, 'x'.repeat(5_000_000))
  await insert('good', 20)
  const won: string[][] = []
  const claim = () =>
    claims.claimBatch(PHASE, 100, (some) => won.push(some.map(({ lease }) => String(lease.id).replace(/\d+/, ''))))
  const { claimed, cut } = await claim()
  expect(won).toEqual([Array(20).fill('good'), Array(3).fill('bad')])
  expect(claimed).toHaveLength(23)
  expect(cut).toBe(true)
  expect((await claim()).claimed).toHaveLength(2)
})

describe('ends that are written together', () => {
  test('a document that would grow beyond 16 MiB (10334): all but the culprit', async () => {
    const collection = await lockedCollection(database.db)
    const big = 'x'.repeat(9_000_000)
    const leases = await held(collection, [{}, { big }, {}])
    const ends = leases.map((lease, n) => endOf(lease, again(), { set: n === 1 ? { more: big } : { n } }))
    expect(await verdictsOf(collection, ends)).toEqual(['recorded', 'rejected', 'recorded'])
  })

  test('more than a command can hold: 1,000 sets of 20 kB are all recorded', async () => {
    const collection = await lockedCollection(database.db)
    const leases = await held(collection, blank(1_000))
    const text = 'x'.repeat(30_000)
    const ends = leases.map((lease, n) => endOf(lease, wait(), { set: { text, n } }))
    expect(new Set(await verdictsOf(collection, ends))).toEqual(new Set(['recorded']))
    expect(await read(collection, 999)).toMatchObject({ n: 999 })
  })

  test('a set that no command can hold is rejected, not retried for ever, and holds nobody up', async () => {
    const collection = await lockedCollection(database.db)
    const leases = await held(collection, blank(3))
    const text = 'x'.repeat(20_000_000)
    const ends = leases.map((lease, n) => endOf(lease, wait(), { set: n === 1 ? { text } : { n } }))
    expect(await verdictsOf(collection, ends)).toEqual(['recorded', 'rejected', 'recorded'])
  })
})
