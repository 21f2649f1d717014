import { describe, expect, test } from '@jest/globals'
import type { Collection, Document } from 'mongodb'
import { lookForCandidates } from '../../src/lock/candidates/candidates.js'
import { Claimant, idKey, PhaseMemory } from '../../src/lock/index.js'
import { choose, extentFor } from '../../src/lock/select/selection.js'
import { WorkSplit } from '../../src/lock/select/work-split.js'
import { systemClock } from '../../src/time/index.js'
import { useDatabase } from '../support/database.js'
import {
  ago,
  ClaimsByName,
  claimer,
  lockedCollection,
  ManualClock,
  memoryFor,
  PHASE,
  partOf,
  put,
  TERMS,
} from './fixture.js'

const NAMES = ['api-1~a', 'api-2~b', 'api-3~c', 'api-4~d']
const documents = (n: number): Document[] => Array.from({ length: n }, (_, i) => ({ _id: `gateway-${i}` }))
const idsOf = (lists: readonly (readonly Document[])[]) => lists.flat().map((document) => document['_id'] as string)

function shareOf(self: string, replicas: readonly string[], clock = new ManualClock()) {
  return { clock, share: new WorkSplit(() => ({ self, replicas }), clock) }
}

describe('the share of a replica', () => {
  test('each document falls to exactly one of four, whatever the order of their lists; oldest first', () => {
    const all = documents(1_000)
    const parts = NAMES.map((self, i) => {
      const replicas = [...NAMES.slice(i), ...NAMES.slice(0, i)]
      return idsOf(partOf(shareOf(self, replicas).share, [all], 500).takes)
    })
    expect(parts.flat().sort()).toEqual(idsOf([all]).sort())
    for (const part of parts) {
      expect(part.length).toBeGreaterThan(200)
      expect(part.map((id) => Number(id.slice(8)))).toEqual(
        [...part.map((id) => Number(id.slice(8)))].sort((a, b) => a - b),
      )
    }
  })

  test('who does not know of the newest replica yet disagrees about that one’s share only', () => {
    const all = documents(1_000)
    const before = new Set(idsOf(partOf(shareOf(NAMES[0]!, NAMES.slice(0, 3)).share, [all], 500).takes))
    const after = idsOf(partOf(shareOf(NAMES[0]!, NAMES).share, [all], 500).takes)
    expect(after.every((id) => before.has(id))).toBe(true)
    expect(before.size - after.length).toBeLessThan(150)
  })

  test('looks beyond what others have left where places are few', () => {
    const of = (places: number, replicas: readonly string[]) =>
      extentFor([shareOf(NAMES[0]!, replicas).share], new PhaseMemory(PHASE), places).wanted
    expect([1, 4, 100].map((places) => of(places, NAMES.slice(0, 2)))).toEqual([32, 32, 200])
    expect([1, 4, 100].map((places) => of(places, NAMES))).toEqual([64, 64, 400])
    expect([1, 4, 100].map((places) => of(places, NAMES.slice(0, 1)))).toEqual([1, 4, 100])
  })

  test('alone: everything, and nothing is left to others', () => {
    const all = documents(10)
    expect(partOf(shareOf('a', ['a']).share, [all], 5)).toMatchObject({ takes: [all], left: 0 })
  })

  test('what falls to another is left to it, and taken over when it still lies there a moment later', () => {
    const { share, clock } = shareOf(NAMES[0]!, NAMES)
    const others = documents(40).filter(
      ({ _id }) => !idsOf(partOf(shareOf(NAMES[0]!, NAMES).share, [[{ _id }]], 1).takes).length,
    )
    const first = partOf(share, [others], 40)
    expect(first).toMatchObject({ takes: [[]], left: others.length })
    expect(first.againInMs).toBeGreaterThan(0)
    clock.advance(first.againInMs)
    const second = partOf(share, [others], 40)
    // The last ones, as their own replica begins with the first.
    expect(idsOf(second.takes)).toEqual(idsOf([others]).reverse().slice(0, 16))
    expect(second.left).toBe(others.length - 16)
  })

  test('what another has had its time for is taken at once; what came beside it is left to that one', () => {
    const { share } = shareOf(NAMES[0]!, NAMES)
    const others = documents(40).filter(({ _id }) => !share.isOwn(idKey(_id)))
    const waitedFor = others[3]!['_id']
    share.waitedFor(memoryFor(share), idKey(waitedFor))
    const parted = partOf(share, [others], 40)
    expect(idsOf(parted.takes)).toEqual([waitedFor])
    expect(parted.left).toBe(others.length - 1)
  })

  test('where the other one was quicker the patience grows, where not the number grows', () => {
    const { share, clock } = shareOf(NAMES[0]!, NAMES)
    const all = documents(400)
    const others = all.filter(
      (document) => idsOf(partOf(shareOf(NAMES[0]!, NAMES).share, [[document]], 1).takes).length === 0,
    )
    const { againInMs } = partOf(share, [others], 400)
    share.tookOver(16, 16)
    expect(partOf(share, [others], 400).againInMs).toBe(2 * againInMs)
    share.tookOver(16, 0)
    share.tookOver(32, 0)
    clock.advance(againInMs)
    expect(partOf(share, [others], 400).takes.flat()).toHaveLength(64)
  })
})

describe('claims that share', () => {
  const database = useDatabase()

  test('four replicas over one backlog: each document once, no candidate lost', async () => {
    const collection = await lockedCollection(database.db)
    await collection.insertMany(Array.from({ length: 2_000 }, () => ({ phase: PHASE })))
    const { serverClock } = await claimer(collection)
    // Its time stands still: nobody loses patience with the others, however slow the machine is.
    const clock = new ManualClock()
    const results = await Promise.all(
      NAMES.map(async (self) => {
        const share = new WorkSplit(() => ({ self, replicas: NAMES }), clock)
        const claims = new ClaimsByName({
          collection,
          terms: () => TERMS,
          claimant: new Claimant(self),
          clock,
          serverClock,
          workSplit: share,
        })
        const won: unknown[] = []
        let lost = 0
        for (;;) {
          const result = await claims.claimBatch(PHASE, 100)
          won.push(...result.claimed.map(({ lease }) => String(lease.id)))
          lost += result.lost
          if (result.candidates === 0 && !result.more) return { won, lost }
        }
      }),
    )
    expect(results.map(({ lost }) => lost)).toEqual([0, 0, 0, 0])
    expect(new Set(results.flatMap(({ won }) => won)).size).toBe(2_000)
  })

  test('four that hear the same names: each claims its own without a look, nothing is tried for twice; then what is left', async () => {
    const collection = await lockedCollection(database.db)
    const ids = documents(200).map(({ _id }) => _id as string)
    await collection.insertMany(ids.map((_id) => ({ _id: _id as never, phase: PHASE })))
    const { serverClock } = await claimer(collection)
    const clock = new ManualClock()
    const all = NAMES.map((self) => {
      const share = new WorkSplit(() => ({ self, replicas: NAMES }), clock)
      return new ClaimsByName({
        collection,
        terms: () => TERMS,
        claimant: new Claimant(self),
        clock,
        serverClock,
        workSplit: share,
      })
    })
    const [dead, ...alive] = all
    const results = await Promise.all(alive.map((claims) => claims.claimNamed(PHASE, ids)))
    for (const { claimed, left, lost, notFound } of results) {
      expect({ seen: claimed.length + left, lost, notFound }).toEqual({ seen: 200, lost: 0, notFound: 0 })
    }
    const won = results.flatMap(({ claimed }) => claimed.map(({ lease }) => String(lease.id)))
    expect(new Set(won).size).toBe(won.length)
    expect(won.length).toBeLessThan(200)
    // The first look after their time takes over what still lies there.
    clock.advance(results[0]!.againInMs)
    const { claimed } = await alive[0]!.claimBatch(PHASE, 200)
    expect(claimed).toHaveLength(Math.min(16, 200 - won.length))
    expect(await dead!.claimNamed(PHASE, [ids[0]])).toMatchObject({ lost: 0 })
  })

  test('by name nothing is claimed that isn’t due, or of another phase', async () => {
    const collection = await lockedCollection(database.db)
    await put(
      collection,
      { _id: 'due', phase: PHASE },
      { _id: 'asleep', phase: PHASE, lockedAt: ago(-60_000) },
      { _id: 'moved', phase: 'Another' },
    )
    const { claims } = await claimer(collection)
    const result = await claims.claimNamed(PHASE, ['due', 'asleep', 'moved', 'nobody'])
    expect(result).toMatchObject({ claimed: [{ document: { _id: 'due' } }], notFound: 3, lost: 0 })
    expect(await claims.claimNamed(PHASE, ['due'])).toMatchObject({ claimed: [], notFound: 1 })
  })

  test.each([1, 2])('by name (%d) nothing is claimed that this replica can’t work on', async (count) => {
    const collection = await lockedCollection(database.db)
    await put(collection, { _id: 'a', phase: PHASE, task: 'ours' }, { _id: 'b', phase: PHASE, task: 'theirs' })
    const { claims } = await claimer(collection, {
      terms: { ...TERMS, only: { phases: [PHASE], where: { task: 'ours' } } },
    })
    const result = await claims.claimNamed(PHASE, ['b', 'a'].slice(0, count))
    expect(result).toMatchObject({ claimed: [{ document: { _id: 'a' } }].slice(0, count - 1), notFound: 1 })
  })

  test('nothing of it is left to others, who may not be able to, and nothing is kept for them', async () => {
    const collection = await lockedCollection(database.db)
    const ids = documents(20).map(({ _id }) => _id as string)
    await collection.insertMany(ids.map((_id) => ({ _id: _id as never, phase: PHASE, task: 'ours' })))
    const clock = new ManualClock()
    const share = new WorkSplit(() => ({ self: NAMES[0]!, replicas: NAMES }), clock)
    const terms = { ...TERMS, only: { phases: [PHASE], where: { task: 'ours' } } }
    const { serverClock } = await claimer(collection)
    const claims = new ClaimsByName({
      collection,
      terms: () => terms,
      claimant: new Claimant(NAMES[0]!),
      clock,
      serverClock,
      workSplit: share,
    })
    expect(await claims.claimNamed(PHASE, ids)).toMatchObject({ candidates: 20, left: 0, notFound: 0 })
  })

  test('a dead replica’s share is taken over, all of it', async () => {
    const collection = await lockedCollection(database.db)
    await collection.insertMany(Array.from({ length: 300 }, () => ({ phase: PHASE })))
    const { serverClock } = await claimer(collection)
    const clock = new ManualClock()
    const share = new WorkSplit(() => ({ self: NAMES[0]!, replicas: NAMES.slice(0, 2) }), clock)
    const claims = new ClaimsByName({
      collection,
      terms: () => TERMS,
      claimant: new Claimant(NAMES[0]!),
      clock,
      serverClock,
      workSplit: share,
    })
    let won = 0
    for (;;) {
      const result = await claims.claimBatch(PHASE, 100)
      won += result.claimed.length
      if (result.left === 0) break
      clock.advance(result.againInMs)
    }
    expect(won).toBe(300)
  })
})

describe('ranges of candidates', () => {
  const database = useDatabase()

  /** Up to 40 candidates, and whether the look saw nothing but unlocked ones behind the new. */
  async function find(collection: Collection, { dueBound, crowded = false }: { dueBound: Date; crowded?: boolean }) {
    const memory = new PhaseMemory(PHASE)
    memory.isCrowded = crowded
    const extent = extentFor([], memory, 40)
    const { lists } = await lookForCandidates(collection, TERMS, { memory, dueBound, extent })
    return { crowded: memory.isCrowded, documents: choose([], memory, lists, extent, () => 0).documents }
  }

  test('new, unlocked and woken documents each have their part of a claim, whatever there is of the others', async () => {
    const collection = await lockedCollection(database.db)
    const many = (n: number, kind: string, fields: Document) =>
      Array.from({ length: n }, (_, i) => ({ _id: `${kind}${i}` as never, phase: PHASE, ...fields }))
    const epoch = { lockedAt: new Date(0), updatedAt: new Date(5) }
    await collection.insertMany([
      ...many(50, 'new', {}),
      ...many(30, 'free', { lockedAt: new Date(0) }),
      ...many(40, 'released', epoch),
    ])
    await put(collection, ...many(20, 'woken', { lockedAt: ago(60_000) }))
    const { serverClock } = await claimer(collection)
    const dueBound = serverClock.dueBound(TERMS.lockTimeoutMs)!
    const found = await find(collection, { dueBound })
    expect(kinds(found.documents)).toEqual({ woken: 0, released: 20, new: 20 })
    // It saw nothing but released ones behind the new: the next one looks for woken ones too.
    expect(found.crowded).toBe(true)
    const next = await find(collection, { dueBound, crowded: true })
    expect(kinds(next.documents)).toEqual({ woken: 10, released: 20, new: 10 })
  })

  const kinds = (found: readonly Document[]) => {
    const count = (kind: string) => found.filter(({ _id }) => String(_id).startsWith(kind)).length
    return { woken: count('woken'), released: count('released'), new: count('new') + count('free') }
  }

  test('a document that a chain has given back is claimed although new ones never end', async () => {
    const collection = await lockedCollection(database.db)
    await put(collection, { _id: 'given back', phase: PHASE, lockedAt: new Date(0), updatedAt: '$$NOW' })
    const { claims } = await claimer(collection, { clock: systemClock })
    for (let round = 0; ; round += 1) {
      await collection.insertMany(Array.from({ length: 40 }, () => ({ phase: PHASE })))
      const { claimed } = await claims.claimBatch(PHASE, 20)
      if (claimed.some(({ lease }) => lease.id === 'given back')) break
      expect(round).toBeLessThan(3)
    }
  })
})
