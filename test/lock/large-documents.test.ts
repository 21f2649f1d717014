import { expect, test } from '@jest/globals'
import { useDatabase } from '../support/database.js'
import { claimer, interrupted, LOCK_TIMEOUT_MS, lockedCollection, ManualClock, PHASE } from './fixture.js'

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
