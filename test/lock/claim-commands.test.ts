import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { claimCommands } from '../../src/lock/claim/claim-commands.js'
import { PARKED_AT } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { claimed, claimer, lockedCollection, PHASE, put, read } from './fixture.js'

const nobody = { isSuspect: (_id: unknown) => false, wasMissed: (_id: unknown) => false }
const fresh = (count: number, from = 0): Document[] =>
  Array.from({ length: count }, (_, i) => ({ _id: `n${from + i}` }))
const others = (count: number): Document[] => Array.from({ length: count }, (_, i) => ({ _id: `o${i}`, fence: 1 }))
const sizes = (candidates: Document[], of = nobody) =>
  claimCommands(candidates, of).together.map(({ ids, areNew }) => [ids.length, areNew ? 'new' : 'any'])

describe('the commands of a claim', () => {
  test('no more than 500 in one command, alike ones together, each document once', () => {
    expect(sizes(fresh(500))).toEqual([[500, 'new']])
    expect(sizes(fresh(1_000))).toEqual([
      [500, 'new'],
      [500, 'new'],
    ])
    expect(sizes([...fresh(601), ...others(300)])).toEqual([
      [300, 'any'],
      [301, 'new'],
      [300, 'new'],
    ])
    const { together } = claimCommands([...fresh(601), ...others(300)], nobody)
    expect(new Set(together.flatMap(({ ids }) => ids)).size).toBe(901)
    expect(sizes([])).toEqual([])
  })

  test('a few new ones go with the others; what a claim has missed is not taken for new', () => {
    expect(sizes([...fresh(99), ...others(20)])).toEqual([[119, 'any']])
    expect(sizes(fresh(150), { ...nobody, wasMissed: (id) => id === 'n7' })).toEqual([
      [1, 'any'],
      [149, 'new'],
    ])
  })

  test('what has refused a claim before is tried apart', () => {
    const { together, apart } = claimCommands(others(20), {
      ...nobody,
      isSuspect: (id) => Number(String(id).slice(1)) < 9,
    })
    expect(together.map(({ ids }) => ids.length)).toEqual([11])
    expect(apart).toEqual(Array.from({ length: 9 }, (_, i) => `o${i}`))
  })
})

describe('a claim of many new documents', () => {
  const database = useDatabase()

  test('sets what any claim sets, and keeps what their owner has written', async () => {
    const collection = await lockedCollection(database.db)
    await put(collection, { _id: 'a', phase: PHASE, own: { deep: 1 } })
    const { document: one } = await claimed(collection)
    const createdAt = new Date(5)
    await collection.insertMany([
      ...fresh(150).map(({ _id }) => ({ _id, phase: PHASE, own: { deep: 1 } })),
      { _id: 'owns' as never, phase: PHASE, own: { deep: 1 }, createdAt },
    ])
    const { claims } = await claimer(collection)
    const result = await claims.claimBatch(PHASE, 300)
    expect(result).toMatchObject({ candidates: 151, lost: 0, broken: [] })
    expect(result.claimed).toHaveLength(151)
    for (const { document, lease } of result.claimed) {
      expect(Object.keys(document).sort()).toEqual(Object.keys(one).sort())
      const { lockedAt, fence } = document
      expect(document).toMatchObject({ lockedBy: lease.token, updatedAt: lockedAt, own: { deep: 1 } })
      expect(document['progress']).toEqual({ since: lockedAt, claims: 1, attempts: 0 })
      expect(document['createdAt']).toEqual(document['_id'] === 'owns' ? createdAt : lockedAt)
      expect(fence).toBe(lockedAt.getTime() * 1000)
      expect(lease.fence).toBe(fence)
    }
  })

  test("leaves an owner's progress alone that the look could not see; the next claim knows", async () => {
    const collection = await lockedCollection(database.db)
    await collection.insertMany([
      ...fresh(150).map(({ _id }) => ({ _id, phase: PHASE })),
      { _id: 'text' as never, phase: PHASE, progress: 'mine' },
      { _id: 'object' as never, phase: PHASE, progress: { mine: 1 } },
    ])
    const { claims } = await claimer(collection)
    const first = await claims.claimBatch(PHASE, 300)
    expect(first).toMatchObject({ candidates: 152, lost: 2, broken: [] })
    expect(await read(collection, 'text')).toEqual({ _id: 'text', phase: PHASE, progress: 'mine' })
    const second = await claims.claimBatch(PHASE, 300)
    expect(second).toMatchObject({ candidates: 2, lost: 0, broken: ['text'] })
    expect(second.claimed.map(({ document }) => document['progress'])).toEqual([
      expect.objectContaining({ mine: 1, claims: 1 }),
    ])
    expect(await read(collection, 'text')).toEqual({ _id: 'text', phase: PHASE, progress: 'mine', lockedAt: PARKED_AT })
  })

  test('tells of each part when it is won, each under a token of its own', async () => {
    const collection = await lockedCollection(database.db)
    await collection.insertMany(fresh(900).map(({ _id }) => ({ _id, phase: PHASE })))
    const { claims } = await claimer(collection)
    const told: string[][] = []
    const { claimed: all } = await claims.claimBatch(PHASE, 1_000, (some) =>
      told.push(some.map(({ lease }) => lease.token)),
    )
    expect(told.map(({ length }) => length)).toEqual([450, 450])
    expect(told.map((tokens) => new Set(tokens).size)).toEqual([1, 1])
    expect(new Set(told.flat()).size).toBe(2)
    expect(new Set(all.map(({ lease }) => lease.id)).size).toBe(900)
  })
})
