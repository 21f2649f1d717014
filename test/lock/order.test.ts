import { beforeEach, describe, expect, test } from '@jest/globals'
import { type Collection, type Document, Long, ObjectId, UUID } from 'mongodb'
import { candidateCursor } from '../../src/lock/candidates/candidates.js'
import { orderIndex } from '../../src/lock/documents/read.js'
import { type ClaimOrder, ensureLockIndexes, orderIndexes, RANKS } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { randomNumbers } from '../support/random.js'
import { ago, claimer, lockedCollection, PHASE, put, TERMS } from './fixture.js'

describe('the order of claims', () => {
  const database = useDatabase()
  let collection: Collection
  beforeEach(async () => {
    collection = await lockedCollection(database.db)
  })

  async function ordered(order: ClaimOrder, random = randomNumbers(7)) {
    await ensureLockIndexes(collection, {}, orderIndexes(order))
    return (await claimer(collection, { order, random })).claims
  }

  const insert = (n: number, prefix: string, fields: Document = {}) =>
    collection.insertMany(
      Array.from({ length: n }, (_, i) => ({ _id: `${prefix}${i}` as never, phase: PHASE, ...fields })),
    )

  /** How many documents of each prefix a claim has won. */
  function counted(claimed: readonly { readonly document: Document }[]) {
    const counts: Record<string, number> = {}
    for (const { document } of claimed) {
      const prefix = String(document['_id']).replace(/\d+$/, '')
      counts[prefix] = (counts[prefix] ?? 0) + 1
    }
    return counts
  }

  describe('by priority', () => {
    const order = { priorityBy: 'priority' }

    test('each rank gets at least its share of a claim, and the highest what the others leave', async () => {
      await insert(500, 'odd', { priority: 'hihg' })
      for (const rank of Object.keys(RANKS)) await insert(500, rank, { priority: rank })
      const claims = await ordered(order)
      const first = counted((await claims.claimBatch(PHASE, 320)).claimed)
      for (const [rank, share] of Object.entries(RANKS))
        expect(first[rank]).toBeGreaterThanOrEqual(Math.floor(320 * share))
      expect(first['odd']).toBeGreaterThanOrEqual(20)
    })

    test('an urgent one is in the first claim, however many of a lower rank are older', async () => {
      await insert(2_000, 'low', { priority: 'low' })
      await insert(2_000, 'normal')
      await insert(3, 'urgent', { priority: 'urgent' })
      const { claimed } = await (await ordered(order)).claimBatch(PHASE, 10)
      expect(counted(claimed)).toMatchObject({ urgent: 3 })
    })

    test('with one place low ones get every sixteenth claim on average while urgent ones keep coming', async () => {
      await insert(600, 'urgent', { priority: 'urgent' })
      await insert(600, 'low', { priority: 'low' })
      const claims = await ordered(order)
      const all: Record<string, number> = {}
      for (let i = 0; i < 400; i += 1) {
        const [[kind] = ['none']] = Object.entries(counted((await claims.claimBatch(PHASE, 1)).claimed))
        all[kind] = (all[kind] ?? 0) + 1
      }
      expect(all['low']).toBeGreaterThan(400 / 16 / 2)
      expect(all['low']).toBeLessThan(400 / 8)
    })

    test.each(['toString', 'constructor', '__proto__', '', 7, {}, ['urgent'], true])(
      'a priority of %p is none: the document is claimed, by its age',
      async (priority) => {
        await insert(5, 'named', { priority: 'high' })
        await insert(1, 'odd', { priority })
        const { claimed } = await (await ordered(order)).claimBatch(PHASE, 10)
        expect(counted(claimed)).toEqual({ named: 5, odd: 1 })
      },
    )

    test('a list that begins with a rank has none, however many documents are due', async () => {
      await insert(2_000, 'low', { priority: 'low' })
      await insert(200, 'list', { priority: ['urgent'] })
      const { claimed } = await (await ordered(order)).claimBatch(PHASE, 32)
      // The part of those without a rank: as many as are older.
      expect(counted(claimed)['list'] ?? 0).toBeLessThanOrEqual(2)
    })

    test('no rank and null are normal, and what has woken in a rank has its part beside what is new', async () => {
      await insert(100, 'missing')
      await insert(100, 'null', { priority: null })
      await insert(100, 'named', { priority: 'normal' })
      await put(
        collection,
        ...Array.from({ length: 50 }, (_, i) => ({ _id: `woken${i}`, phase: PHASE, lockedAt: ago(60_000) })),
      )
      const { claimed } = await (await ordered(order)).claimBatch(PHASE, 80)
      expect(counted(claimed)['woken']).toBeGreaterThanOrEqual(20)
      expect(claimed).toHaveLength(80)
    })

    test('all are claimed, each once, with whatever is in the field', async () => {
      const odd = [1, 'hihg', [], ['high', 'low'], {}, new Date(), true, new Long(5)]
      for (const [i, priority] of odd.entries()) await insert(20, `odd${i}x`, { priority })
      for (const rank of Object.keys(RANKS)) await insert(20, rank, { priority: rank })
      const claims = await ordered(order)
      const won = new Set<unknown>()
      for (let i = 0; i < 100 && won.size < 240; i += 1) {
        for (const { document } of (await claims.claimBatch(PHASE, 10)).claimed) won.add(document['_id'])
      }
      expect(won.size).toBe(240)
    })

    test('reads a key per candidate, however many of other ranks are before it', async () => {
      await insert(5_000, 'low', { priority: 'low' })
      await insert(20, 'high', { priority: 'high' })
      await insert(5_000, 'asleep', { priority: 'high', lockedAt: new Date('9000-01-01') })
      await ensureLockIndexes(collection, {}, orderIndexes(order))
      const reading = { limit: 50, dueBound: new Date(), index: orderIndex('priority'), at: { priority: 'high' } }
      for (const [range, keys] of [['fresh', 20] as const, ['waiting', 0] as const]) {
        const cursor = candidateCursor(collection, TERMS, PHASE, range, reading)
        const { totalKeysExamined } = (await cursor.explain('executionStats'))['executionStats']
        expect(totalKeysExamined).toBeLessThanOrEqual(keys + 1)
      }
    })
  })

  describe('by turns', () => {
    const order = { fairBy: 'tenant' }

    test("another tenant's documents are in the first claims, behind 20,000 of one", async () => {
      await insert(20_000, 'big', { tenant: 'big' })
      await insert(5, 'small', { tenant: 'small' })
      const claims = await ordered(order)
      expect(counted((await claims.claimBatch(PHASE, 16)).claimed)).toMatchObject({ small: 1 })
      expect(counted((await claims.claimBatch(PHASE, 16)).claimed)).toEqual({ small: 4, big: 12 })
    })

    test('with one place at a time, it waits for a few claims', async () => {
      await insert(3_000, 'big', { tenant: 'big' })
      await insert(3, 'small', { tenant: 'small' })
      const claims = await ordered(order)
      const all: string[] = []
      for (let i = 0; i < 12; i += 1) all.push(...Object.keys(counted((await claims.claimBatch(PHASE, 1)).claimed)))
      expect(all.filter((one) => one === 'small')).toHaveLength(3)
    })

    test('each of 100 tenants has a turn within eight claims, and all get the same', async () => {
      for (let i = 0; i < 100; i += 1) await insert(100, `t${i}x`, { tenant: `t${i}` })
      const claims = await ordered(order)
      const all: Record<string, number> = {}
      for (let i = 0; i < 8; i += 1) {
        const { claimed } = await claims.claimBatch(PHASE, 64)
        for (const { document } of claimed) all[document['tenant']] = (all[document['tenant']] ?? 0) + 1
      }
      expect(Object.keys(all)).toHaveLength(100)
      // The two oldest have the places that go by age, too.
      const others = Object.entries(all).flatMap(([one, n]) => (['t0', 't1'].includes(one) ? [] : n))
      expect(Math.min(...others)).toBeGreaterThanOrEqual(3)
      expect(Math.max(...others)).toBeLessThanOrEqual(8)
    })

    test('values may be strings, numbers, booleans, dates, ObjectIds and UUIDs, and a missing one has turns like any other', async () => {
      await insert(5_000, 'big', { tenant: 'big' })
      const numbers = { long: new Long(7), double: 7.5, nan: Number.NaN, less: Number.NEGATIVE_INFINITY }
      const others = {
        oid: new ObjectId(),
        uuid: new UUID(),
        yes: true,
        no: false,
        date: new Date(0),
        old: new Date(-1),
      }
      const values = { string: 'a', ...numbers, ...others }
      for (const [kind, tenant] of Object.entries(values)) await insert(3, kind, { tenant })
      await insert(3, 'missing')
      await insert(3, 'null', { tenant: null })
      const claims = await ordered(order)
      const all: Record<string, number> = {}
      for (let i = 0; i < 4; i += 1) {
        for (const [kind, n] of Object.entries(counted((await claims.claimBatch(PHASE, 32)).claimed))) {
          all[kind] = (all[kind] ?? 0) + n
        }
      }
      const each = Object.fromEntries([...Object.keys(values), 'missing', 'null'].map((kind) => [kind, 3]))
      expect(all).toMatchObject(each)
    })

    test('all are claimed, each once, with whatever is in the field', async () => {
      const odd = [['a', 'b'], [], {}, { a: 1 }, new Date(), true, Number.NaN, /x/]
      for (const [i, tenant] of odd.entries()) await insert(30, `odd${i}x`, { tenant })
      await insert(60, 'sound', { tenant: 'a' })
      const claims = await ordered(order)
      const won = new Set<unknown>()
      for (let i = 0; i < 100 && won.size < 300; i += 1) {
        for (const { document } of (await claims.claimBatch(PHASE, 10)).claimed) won.add(document['_id'])
      }
      expect(won.size).toBe(300)
    })

    // A regular expression would stand for all that it matches, an object whose key begins with $ is refused by the server.
    test.each([/few/, { $a: 1 }, [/few/], { a: /few/ }])(
      'a value %p that is full takes no turns from others',
      async (value) => {
        await insert(2_000, 'many', { tenant: 'many' })
        await insert(3, 'few', { tenant: 'few' })
        const full = {
          full: () => [value, 'none', 5, null],
          admit: async (documents: readonly Document[]) => documents,
          hasKeys: true,
          isExhausted: false,
        }
        const claims = await ordered(order)
        const { claimed } = await claims.claimBatch(PHASE, 16, undefined, [], full)
        expect(counted(claimed)).toMatchObject({ few: 1 })
      },
    )

    test('an array in the field has no turns, and takes none from others', async () => {
      await insert(500, 'array', { tenant: ['a', null] })
      await insert(6, 'small', { tenant: 'small' })
      await insert(6, 'none')
      const claims = await ordered(order)
      const all: string[] = []
      for (let i = 0; i < 3; i += 1)
        all.push(...(await claims.claimBatch(PHASE, 16)).claimed.map(({ document }) => document['_id']))
      for (const prefix of ['small', 'none']) expect(all.filter((id) => id.startsWith(prefix))).toHaveLength(6)
      expect(all.filter((id) => id.startsWith('array')).length).toBeGreaterThanOrEqual(6)
    })

    test('finds the next tenant by two keys for each whose documents all sleep', async () => {
      const asleep = { lockedAt: new Date('9000-01-01') }
      for (let i = 0; i < 50; i += 1) await insert(200, `asleep${i}x`, { tenant: `a${i}`, ...asleep })
      await insert(1_000, 'big', { tenant: 'big' })
      await insert(4, 'last', { tenant: 'z' })
      const claims = await ordered(order)
      const reads = recordedReads(collection)
      const { claimed } = await claims.claimBatch(PHASE, 16)
      expect(counted(claimed)).toMatchObject({ last: 1 })
      const keys = await Promise.all(
        reads().map(async ([filter, options]) => {
          const { executionStats } = await database.db
            .collection('Thing')
            .find(filter, options)
            .explain('executionStats')
          return executionStats.totalKeysExamined as number
        }),
      )
      expect(keys.length).toBeGreaterThan(0)
      expect(Math.max(...keys)).toBeLessThan(2 * 50 + 16)
    })

    test('with priorities too: half of a claim goes by rank', async () => {
      await insert(3_000, 'big', { tenant: 'big', priority: 'low' })
      await insert(3_000, 'urgent', { tenant: 'big', priority: 'urgent' })
      await insert(2, 'small', { tenant: 'small', priority: 'low' })
      const { claimed } = await (await ordered({ ...order, priorityBy: 'priority' })).claimBatch(PHASE, 64)
      const counts = counted(claimed)
      expect(counts['small']).toBe(2)
      expect(counts['urgent']).toBeGreaterThanOrEqual(16)
    })
  })

  test('an index that is missing is told, and nothing is read without it', async () => {
    await insert(50, 'd', { tenant: 'a' })
    const { claims } = await claimer(collection, { order: { fairBy: 'tenant' } })
    await expect(claims.claimBatch(PHASE, 5)).rejects.toMatchObject({
      name: 'MissingIndex',
      message: expect.stringContaining('{"tenant":1,"phase":1,"lockedAt":1,"updatedAt":1}'),
    })
  })
})

/** The reads of one collection that name no `min`: those by turns. */
function recordedReads(collection: Collection) {
  const calls: [Document, Document][] = []
  const find = collection.find.bind(collection)
  collection.find = ((filter: Document, options: Document) => {
    if (filter['$and']) calls.push([filter, options])
    return find(filter, options)
  }) as never
  return () => calls
}
