import { describe, expect, test } from '@jest/globals'
import type { Collection, Document } from 'mongodb'
import { Claimant, claimUpdate, isDue } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { ago, ClaimsByName, claimer, endOf, lockedCollection, PHASE, put, TERMS, unlock, writer } from './fixture.js'

/** Free documents, as a writer in any language inserts them. */
async function fresh(collection: Collection, n: number, from = 0): Promise<void> {
  await collection.insertMany(Array.from({ length: n }, (_, i) => ({ _id: (from + i) as never, phase: PHASE })))
}

describe('claims that race', () => {
  const database = useDatabase()

  test('two replicas over 2,000 documents win each of them exactly once, under tokens of their own', async () => {
    const collection = await lockedCollection(database.db)
    await fresh(collection, 2_000)
    const replicas = await Promise.all([claimer(collection, { name: 'one' }), claimer(collection, { name: 'two' })])
    const winners = new Map<number, string[]>()
    await Promise.all(
      replicas.map(async ({ claims }, i) => {
        for (;;) {
          const result = await (i === 0 ? claims.claimBatch(PHASE, 97) : claims.claimBatch(PHASE, 150))
          for (const { lease } of result.claimed) {
            const id = lease.id as number
            winners.set(id, [...(winners.get(id) ?? []), lease.token])
          }
          if (result.candidates === 0) return
        }
      }),
    )
    expect(winners.size).toBe(2_000)
    expect([...winners.values()].filter((tokens) => tokens.length !== 1)).toEqual([])
    const stored = await collection.find({}, { projection: { lockedBy: 1 } }).toArray()
    expect(stored.filter((doc) => doc['lockedBy'] !== winners.get(doc._id as never)?.[0])).toEqual([])
  })

  test('one document, 200 rounds of claimOne against a batch: never both, never neither', async () => {
    const collection = await lockedCollection(database.db)
    await fresh(collection, 1)
    const [one, two] = [await claimer(collection, { name: 'one' }), await claimer(collection, { name: 'two' })]
    const end = writer(collection)
    const wins = [0, 0]
    for (let round = 0; round < 200; round += 1) {
      const results = await Promise.all([one.claims.claimBatch(PHASE, 1), two.claims.claimBatch(PHASE, 10)])
      const won = results.flatMap((result) => result.claimed)
      expect(won).toHaveLength(1)
      wins[results[0].claimed.length === 1 ? 0 : 1]! += 1
      await end.write([endOf(won[0]!.lease, unlock)])
    }
    expect(wins[0]! + wins[1]!).toBe(200)
  })

  test("negative control: without the due condition in the batch's update both win the same document", async () => {
    const collection = await lockedCollection(database.db)
    await fresh(collection, 1)
    const wins = async (token: string, condition: Document) => {
      await collection.updateMany({ _id: 0 as never, ...condition }, claimUpdate(TERMS, token))
      return (await collection.countDocuments({ _id: 0 as never, lockedBy: token })) === 1
    }
    const due = { $expr: isDue(TERMS) }
    expect([await wins('one', due), await wins('two', due)]).toEqual([true, false])
    expect([await wins('three', {}), await wins('four', {})]).toEqual([true, true])
  })

  test('lifecycles of one replica that share a collection never give out the same token', async () => {
    const collection = await lockedCollection(database.db)
    await fresh(collection, 4)
    const { identity, clock, serverClock } = await claimer(collection)
    const claimant = new Claimant(identity)
    const claims = () => new ClaimsByName({ collection, terms: () => TERMS, claimant, clock, serverClock })
    const [a, b] = [claims(), claims()]
    const tokens: string[] = []
    for (const one of [a, b, a, b]) tokens.push((await one.claimBatch(PHASE, 1)).claimed[0]!.lease.token)
    expect(new Set(tokens).size).toBe(4)
  })
})

describe('woken and crashed documents', () => {
  const database = useDatabase()

  /** Claims and unlocks under a stream of fresh documents; returns the round in which the crashed one came up. */
  async function roundsUntilWoken(limit: number, random: () => number, rounds: number): Promise<number> {
    const collection = await lockedCollection(database.db)
    await fresh(collection, 20)
    await put(collection, { _id: 'crashed', phase: PHASE, lockedAt: ago(31_000), lockedBy: 'dead#1.1' })
    const { claims } = await claimer(collection, { random })
    const end = writer(collection)
    for (let round = 1; round <= rounds; round += 1) {
      const { claimed } = await claims.claimBatch(PHASE, limit)
      if (claimed.some(({ lease }) => lease.id === 'crashed')) return round
      // Each goes straight back to epoch, before everything that was woken.
      await end.write(claimed.map(({ lease }) => endOf(lease, unlock)))
    }
    return Number.POSITIVE_INFINITY
  }

  test.each([4, 8, 10])("have a quarter of a batch of %d, so a stream of fresh ones can't starve them", async (n) => {
    expect(await roundsUntilWoken(n, () => 0, 1)).toBe(1)
  })

  test.each([1, 2, 3])('with only %d places a draw gives them their turn', async (limit) => {
    let draw = 0
    const cycle = () => {
      draw += 1
      return (draw % 10) / 10
    }
    expect(await roundsUntilWoken(limit, cycle, 40)).toBeLessThanOrEqual(40)
  })

  test('negative control: taken strictly by lockedAt, one at a time, they never come up', async () => {
    const collection = await lockedCollection(database.db)
    await fresh(collection, 3)
    await put(collection, { _id: 'crashed', phase: PHASE, lockedAt: ago(31_000), lockedBy: 'dead#1.1' })
    // The draw that never gives them their turn.
    const { claims } = await claimer(collection, { random: () => 0.99 })
    const ids: unknown[] = []
    for (let round = 0; round < 30; round += 1) {
      const { claimed } = await claims.claimBatch(PHASE, 1)
      ids.push(claimed[0]!.lease.id)
      await writer(collection).write([endOf(claimed[0]!.lease, unlock)])
    }
    expect(ids).not.toContain('crashed')
  })

  test('what one range leaves free the other takes', async () => {
    const collection = await lockedCollection(database.db)
    await fresh(collection, 3)
    const { claims } = await claimer(collection)
    const woken = Array.from({ length: 30 }, (_, i) => ({ _id: `w${i}`, phase: PHASE, lockedAt: ago(31_000) }))
    await put(collection, ...woken)
    const first = await claims.claimBatch(PHASE, 20)
    expect(first.claimed).toHaveLength(20)
    expect(first.claimed.filter(({ lease }) => typeof lease.id === 'number')).toHaveLength(3)
    await fresh(collection, 30, 100)
    const second = await claims.claimBatch(PHASE, 40)
    expect(second.claimed).toHaveLength(40)
    expect(second.claimed.filter(({ lease }) => typeof lease.id === 'string').length).toBeGreaterThanOrEqual(10)
  })
})
