import { describe, expect, test } from '@jest/globals'
import type { Collection, Document } from 'mongodb'
import { Claimant, idKey } from '../../src/lock/index.js'
import { WorkSplit } from '../../src/lock/select/work-split.js'
import { useDatabase } from '../support/database.js'
import {
  ago,
  ClaimsByName,
  claimer,
  endOf,
  lockedCollection,
  ManualClock,
  memoryFor,
  PHASE,
  partOf,
  put,
  TERMS,
  unlock,
  writer,
} from './fixture.js'

/** Any due document runs within so long of its turn, while a live replica that handles its phase has room (lock protocol, point 2). */
const BOUND_MS = 5_000
const A = 'api-1~a'
const B = 'api-2~b'
const C = 'api-3~c'
const ROUND_MS = 250

/** What of its own share another replica claims, as a time and a number tell; it says that it is there all the while. */
type Other = (ms: number, n: number) => boolean

const OTHERS: [string, Other][] = [
  ['takes nothing: all its places hang, or it is of a version without the phase', () => false],
  ['takes one now and then', (ms, n) => n === 9 - Math.floor(ms / 1_900)],
  ['takes every second one', (_ms, n) => n % 2 === 0],
]

describe('a preference that ends', () => {
  const database = useDatabase()

  function shareOf(self: string, replicas: readonly string[], clock: ManualClock): WorkSplit {
    return new WorkSplit(() => ({ self, replicas }), clock)
  }

  /** So many `_id`s that fall to a replica. */
  function idsOf(replica: string, replicas: readonly string[], count: number, kind: string): string[] {
    const share = shareOf(replica, replicas, new ManualClock())
    const ids = Array.from({ length: 40 * count }, (_, i) => `${kind} ${i}`).filter((id) => share.isOwn(idKey(id)))
    return ids.slice(0, count)
  }

  async function claimsOf(collection: Collection, self: string, replicas: readonly string[], clock: ManualClock) {
    const { serverClock } = await claimer(collection, { clock })
    const share = shareOf(self, replicas, clock)
    let draws = 0
    // Each range has its part in its turn: no luck is needed.
    const random = () => {
      draws += 1
      return (draws % 4) / 4
    }
    return new ClaimsByName({
      collection,
      terms: () => TERMS,
      claimant: new Claimant(self),
      clock,
      serverClock,
      workSplit: share,
      random,
    })
  }

  /** A goes round a closed set of its own, which fills its places each time; ten documents fall to B. When each of them ran. */
  async function run(fields: Document, limit: (round: number) => number, other: Other): Promise<Map<unknown, number>> {
    const replicas = [A, B]
    const collection = await lockedCollection(database.db)
    const clock = new ManualClock()
    const mine = idsOf(A, replicas, 60, 'a')
    const theirs = idsOf(B, replicas, 10, 'b')
    await put(collection, ...mine.map((_id) => ({ _id, phase: PHASE, lockedAt: new Date(0), updatedAt: ago(5_000) })))
    await put(collection, ...theirs.map((_id) => ({ _id, phase: PHASE, ...fields })))
    const claims = await claimsOf(collection, A, replicas, clock)
    const ranAtMs = new Map<unknown, number>()
    for (let round = 0, ms = 0; ms <= 60_000 && ranAtMs.size < 10; round += 1, ms += ROUND_MS) {
      const taken = theirs.filter((id, n) => !ranAtMs.has(id) && other(ms, n))
      for (const id of taken) ranAtMs.set(id, ms)
      await collection.deleteMany({ _id: { $in: taken as never[] } })
      const { claimed } = await claims.claimBatch(PHASE, limit(round))
      for (const { lease } of claimed) if (theirs.includes(String(lease.id))) ranAtMs.set(lease.id, ms)
      const isOwn = (id: unknown) => mine.includes(String(id))
      await writer(collection).write(
        claimed.filter(({ lease }) => isOwn(lease.id)).map(({ lease }) => endOf(lease, unlock)),
      )
      clock.advance(ROUND_MS)
    }
    return ranAtMs
  }

  const RANGES: [string, Document][] = [
    ['new', {}],
    ['unlocked', { lockedAt: new Date(0), updatedAt: ago(60_000) }],
    ['woken', { lockedAt: ago(60_000) }],
  ]
  const cases = OTHERS.flatMap(([name, other]) =>
    RANGES.map(([range, fields]) => [name, range, fields, other] as const),
  )
  test.each(cases)('beside one that %s: %s documents run within the bound', async (_name, _range, fields, other) => {
    const ranAtMs = await run(fields, () => 10, other)
    expect(ranAtMs.size).toBe(10)
    expect(Math.max(...ranAtMs.values())).toBeLessThanOrEqual(BOUND_MS)
  })

  test('a look at fewer documents forgets none that a look at more has seen', async () => {
    const ranAtMs = await run({}, (round) => (round % 2 === 0 ? 1 : 20), OTHERS[0]![1])
    expect(ranAtMs.size).toBe(10)
    expect(Math.max(...ranAtMs.values())).toBeLessThanOrEqual(BOUND_MS)
  })

  test('a thousand of the other one’s in front of its own, and a thousand behind: they go at the pace of its places', async () => {
    const replicas = [A, B]
    const collection = await lockedCollection(database.db)
    const clock = new ManualClock()
    const theirs = idsOf(B, replicas, 1_000, 'b')
    const mine = idsOf(A, replicas, 500, 'a')
    const stored = (ids: readonly string[]) =>
      collection.insertMany(ids.map((_id) => ({ _id: _id as never, phase: PHASE })))
    await stored(theirs.slice(0, 500))
    await stored(mine)
    await stored(theirs.slice(500))
    const claims = await claimsOf(collection, A, replicas, clock)
    const won: string[] = []
    let ms = 0
    for (; won.length < 1_500 && ms < 20_000; ms += ROUND_MS) {
      won.push(...(await claims.claimBatch(PHASE, 250)).claimed.map(({ lease }) => String(lease.id)))
      clock.advance(ROUND_MS)
    }
    expect(new Set(won).size).toBe(1_500)
    expect(ms).toBeLessThanOrEqual(BOUND_MS)
  })

  test('one that works as fast as this one keeps its share: nothing of it is tried for twice', async () => {
    const replicas = [A, B]
    const collection = await lockedCollection(database.db)
    await collection.insertMany(Array.from({ length: 300 }, (_, i) => ({ _id: i as never, phase: PHASE })))
    const clock = new ManualClock()
    const both = [await claimsOf(collection, A, replicas, clock), await claimsOf(collection, B, replicas, clock)]
    let lost = 0
    for (let ms = 0; ms < 2 * BOUND_MS; ms += ROUND_MS) {
      const results = await Promise.all(both.map((claims) => claims.claimBatch(PHASE, 100)))
      lost += results.reduce((sum, result) => sum + result.lost, 0)
      const ends = results.flatMap(({ claimed }) => claimed.map(({ lease }) => endOf(lease, unlock)))
      if (ends.length > 0) await writer(collection).write(ends)
      clock.advance(ROUND_MS)
    }
    expect(lost).toBe(0)
  })

  test('of three the one to which a document falls next takes it first, then anybody does', () => {
    const replicas = [A, B, C]
    const clock = new ManualClock()
    const [left] = idsOf(C, replicas, 1, 'c')
    const next = shareOf(A, [A, B], clock).isOwn(idKey(left)) ? A : B
    const own = idsOf(A, replicas, 8, 'own').map((_id) => ({ _id }))
    const takes = (share: WorkSplit, self: string) => {
      const full = self === A ? own : idsOf(B, replicas, 8, 'own').map((_id) => ({ _id }))
      return partOf(share, [[{ _id: left }, ...full]], 8).takes[0]![0]!['_id'] === left
    }
    const shares = [A, B].map((self) => [self, shareOf(self, replicas, clock)] as const)
    const whoTakes = () => shares.filter(([self, share]) => takes(share, self)).map(([self]) => self)
    expect(whoTakes()).toEqual([])
    clock.advance(1_500)
    expect(whoTakes()).toEqual([next])
    clock.advance(1_000)
    expect(whoTakes()).toEqual([A, B])
  })

  test('a document that was only heard of, and taken, has its time anew when it comes due again', () => {
    const clock = new ManualClock()
    const share = shareOf(A, [A, B], clock)
    const own = idsOf(A, [A, B], 8, 'own').map((_id) => ({ _id }))
    const [theirs] = idsOf(B, [A, B], 1, 'b')
    const looked = (...due: Document[]) => partOf(share, [[...due, ...own]], 8).takes[0]!.length
    share.leave(memoryFor(share), [idKey(theirs)])
    expect(looked()).toBe(8)
    clock.advance(2_000)
    expect(looked({ _id: theirs, fence: 1 })).toBe(8)
    clock.advance(2_000)
    expect(looked({ _id: theirs, fence: 1 })).toBe(9)
  })

  test('a document that another has claimed in between has its time anew', () => {
    const clock = new ManualClock()
    const share = shareOf(A, [A, B], clock)
    const own = idsOf(A, [A, B], 8, 'own').map((_id) => ({ _id }))
    const [theirs] = idsOf(B, [A, B], 1, 'b')
    const takes = (fence: number) => partOf(share, [[{ _id: theirs, fence }, ...own]], 8).takes[0]!.length === 9
    expect(takes(1)).toBe(false)
    clock.advance(2_000)
    expect(takes(2)).toBe(false)
    clock.advance(2_000)
    expect(takes(2)).toBe(true)
  })
})
