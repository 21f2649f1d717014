import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { BSON, Collection, type Document } from 'mongodb'
import { lifecycleOf } from '../../src/index.js'
import { ensureLockIndexes, moreIndexes, PARKED_AT } from '../../src/lock/index.js'
import { type ListOptions, listDocuments, Refused, type System, UsageError } from '../../src/operations/index.js'
import { type ListPlan, ListReader } from '../../src/operations/inspect/list-reader.js'
import { useDatabase } from '../support/database.js'
import { type Thing, thing, thingSpec } from '../support/thing.js'

const order = lifecycleOf<Thing & { customer?: string; city?: string; tenant?: string | number }>().define({
  ...thingSpec,
  ...{ name: 'order', collection: 'Order', search: ['customer', 'city'], limitBy: 'tenant', each: 2 },
})
const { model } = order

const at = (minutes: number) => new Date(Date.UTC(2026, 0, 1) + minutes * 60_000)
const HOUR = 3_600_000

/** A generator of numbers that repeats itself. */
function numbers(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
    return Math.floor((state / 2_147_483_648) * below)
  }
}

describe('lists', () => {
  afterEach(() => void jest.restoreAllMocks())
  const database = useDatabase()
  const system = (): System => ({ db: database.db, models: [thing.model, model] })
  const orders = () => database.db.collection<Document>(model.collection)
  const prepared = async (documents: readonly Document[]) => {
    await ensureLockIndexes(database.db.collection('Thing'))
    await ensureLockIndexes(orders(), {}, moreIndexes(model.settings))
    if (documents.length > 0) await orders().insertMany(documents.map((one) => ({ ...one })))
  }
  const idOf = ({ document }: { readonly document: Document }) => document['_id'] as unknown

  /** All pages; `between` may change documents that aren't in the list, or whose place is certain. */
  async function pagesOf(options: ListOptions, between: (page: number) => Promise<unknown> = async () => undefined) {
    const ids: unknown[] = []
    const notes: string[] = []
    for (let page = 0, after: string | undefined; ; page += 1) {
      const { documents, next, more, note } = await listDocuments(system(), { ...options, after })
      expect(more).toBe(next !== undefined)
      expect(documents.length).toBeLessThanOrEqual(options.limit ?? 50)
      ids.push(...documents.map(idOf))
      if (note !== undefined) notes.push(note)
      if (next === undefined) return { ids, notes }
      expect(page).toBeLessThan(500)
      await between(page)
      after = next
    }
  }

  const random = numbers(36)
  const some = <T>(values: readonly T[]): T => values[random(values.length)]!
  const PHASES = ['Creating', 'Created', 'Deleting', 'Gone', 7, null]
  const TIMES = [null, undefined, at(1), at(2), at(3), PARKED_AT, 5, 'odd', new BSON.Timestamp({ t: 7, i: 1 })]
  const document = (i: number) => {
    const [lockedAt, updatedAt] = [some(TIMES), some([...TIMES, at(4), at(5)])]
    const times = { ...(lockedAt !== undefined && { lockedAt }), ...(updatedAt !== undefined && { updatedAt }) }
    const _id = some([i, `id-${i}`, BSON.ObjectId.createFromTime(i + 1), at(1_000 + i), { n: i }])
    return { _id, phase: some(PHASES), ...times, state: some(['a', 'b']), customer: some(['x', 'y']) }
  }

  test('pages have each document once, in both orders, whatever the types of its times, while others change', async () => {
    const documents = Array.from({ length: 50 }, (_, i) => document(i))
    await prepared(documents)
    const others = [{ state: 'b' }, { customer: 'y' }, {}] as const
    const lists: [ListOptions, (one: Document) => boolean, (typeof others)[number]][] = [
      [{}, () => true, others[2]],
      [{ phase: 'Creating' }, ({ phase }) => phase === 'Creating', others[2]],
      [{ state: 'a' }, ({ state }) => state === 'a', others[0]],
      [{ filter: { customer: 'x' } }, ({ customer }) => customer === 'x', others[1]],
      [
        { filter: { customer: { $eq: 'x' }, state: 'a' } },
        (one) => one['customer'] === 'x' && one['state'] === 'a',
        others[1],
      ],
      [
        { parked: true },
        ({ lockedAt, phase }) => Number(lockedAt) === PARKED_AT.getTime() && typeof phase === 'string',
        others[2],
      ],
    ]
    const text = (id: unknown) => BSON.EJSON.stringify(id, { relaxed: false })
    for (const [list, isMeant, other] of lists) {
      const meant = (await orders().find().toArray()).filter(isMeant).map(({ _id }) => text(_id))
      for (const limit of Object.keys(list).length === 0 ? [1, 7] : [4]) {
        const ordered: unknown[][] = []
        for (const direction of ['oldest', 'newest'] as const) {
          const churn = async (page: number) => {
            if (Object.keys(other).length === 0 || page % 5 > 0) return
            await orders().updateMany(other as Document, [{ $set: { lockedAt: '$updatedAt', updatedAt: '$$NOW' } }])
            await orders().insertOne({ ...other, phase: 'Creating', customer: 'y', state: 'b' } as Document)
          }
          const { ids } = await pagesOf({ ...list, lifecycle: 'order', order: direction, limit }, churn)
          expect([...ids.map(text)].sort()).toEqual([...meant].sort())
          ordered.push(ids)
        }
        if (limit === 1) expect(ordered[1]!.map(text)).toEqual([...ordered[0]!].reverse().map(text))
      }
    }
  }, 60_000)

  test('an end of what may be read is no end of the list: each is found, and nothing is read without bound', async () => {
    const documents = Array.from({ length: 120 }, (_, i) => ({ ...document(i), _id: i }))
    await prepared(documents as never)
    for (const direction of [1, -1] as const) {
      const rest = { state: 'a', customer: 'x' }
      const plan: ListPlan = { order: 'lease', range: {}, rest, direction, projection: undefined }
      const reader = new ListReader(orders(), plan, 30)
      const ids: unknown[] = []
      let isCrowded = false
      let after: Parameters<ListReader['page']>[0] = {}
      for (let page = 0; ; page += 1) {
        const { rows, next, ...how } = await reader.page(after, 4)
        isCrowded ||= how.isCrowded ?? false
        ids.push(...rows.map(idOf))
        if (!next) break
        expect(page).toBeLessThan(200)
        after = next
      }
      const meant = documents.filter(({ state, customer }) => state === 'a' && customer === 'x')
      expect(isCrowded).toBe(false)
      expect([...ids].sort()).toEqual(meant.map(({ _id }) => _id).sort())
    }
  })

  test('more with the same place than may be read: the first are listed, and the list says so', async () => {
    await prepared(Array.from({ length: 40 }, (_, i) => ({ _id: i, phase: 'Creating' })))
    const plan: ListPlan = { order: 'lease', range: { phase: 'Creating' }, direction: 1, projection: undefined }
    const reader = new ListReader(orders(), plan, 25)
    const first = await reader.page({}, 20)
    expect(first.rows).toHaveLength(20)
    const second = await reader.page(first.next!, 20)
    expect(second).toMatchObject({ isCrowded: true })
    expect(second.rows).toHaveLength(5)
  })

  test('arrays and dates that JavaScript has no name for are left out, which the list says, and it comes to its end', async () => {
    const usual = Array.from({ length: 9 }, (_, i) => ({
      _id: i,
      phase: 'Creating',
      lockedAt: at(i),
      updatedAt: at(i),
    }))
    await prepared(usual)
    expect((await pagesOf({ lifecycle: 'order', limit: 2 })).notes).toEqual([])
    const listed = async (order: 'oldest' | 'newest') => pagesOf({ lifecycle: 'order', limit: 2, order })
    const left = 'left out: documents of order whose phase or times are arrays, or dates out of range (phaselock check)'
    for (const [odd, change] of [
      ['beyond', [{ $set: { lockedAt: { $add: [at(3), BSON.Long.fromNumber(9e15)] } } }]],
      ['before', [{ $set: { lockedAt: { $subtract: [at(3), BSON.Long.fromNumber(9e15)] } } }]],
      ['times', { $set: { lockedAt: [at(2), at(7)] } }],
      ['updated', { $set: { updatedAt: [at(2), at(7)] } }],
      ['phase', { $set: { phase: ['Creating', 'Deleting'] } }],
    ] as const) {
      const ids = Array.from({ length: 3 }, (_, i) => `${odd}${i}`)
      await orders().insertMany(ids.map((_id) => ({ ...usual[4], _id }) as never))
      await orders().updateMany({ _id: { $in: ids as never[] } }, change as never)
      const oldest = await listed('oldest')
      expect([odd, oldest.ids]).toEqual([odd, usual.map(({ _id }) => _id)])
      expect((await listed('newest')).ids).toEqual(usual.map(({ _id }) => _id).reverse())
      expect(oldest.notes).toEqual([left])
      await orders().deleteMany({ _id: { $in: ids as never[] } })
      // The index remembers arrays, so each list looks for some.
      expect((await listed('oldest')).notes).toEqual([])
    }
  }, 30_000)

  test('a cursor is that of its list, and its text is refused elsewhere', async () => {
    await prepared(Array.from({ length: 3 }, (_, i) => ({ _id: `o ${i}/`, phase: 'Creating', updatedAt: at(i) })))
    const { next } = await listDocuments(system(), { lifecycle: 'order', limit: 2 })
    expect(next).toMatch(/^[\da-f]{8}\/order\/Creating\/-\/2026-01-01T00:01:00.000Z\/past$/)
    const from = (cursor: string, more: ListOptions = {}) =>
      listDocuments(system(), { lifecycle: 'order', after: cursor, ...more })
    expect((await from(next!, { limit: 1, payload: true })).documents.map(idOf)).toEqual(['o 2/'])
    for (const more of [
      { phase: 'Creating' },
      { order: 'newest' },
      { lifecycle: 'thing' },
      { olderThan: '1m' },
    ] as const)
      await expect(from(next!, more)).rejects.toThrow('expected a cursor of this list')
    for (const wrong of ['', 'x', `${next}/x`, next!.replace('past', '%'), next!.replace('past', '{"a')])
      await expect(from(wrong)).rejects.toThrow(UsageError)
    await expect(from(next!.replace('/order/', '/thong/'))).rejects.toThrow(UsageError)
  })

  test('by condition, cause, key and age', async () => {
    const now = Date.now()
    const asleep = { phase: 'Creating', lockedAt: new Date(now + HOUR), lockedBy: null }
    const cause = 'a1b2c3d4e5f6'
    await prepared([
      { _id: 'due', phase: 'Creating', updatedAt: new Date(now - 3 * HOUR), tenant: 7 },
      { _id: 'due now', phase: 'Creating', updatedAt: new Date(now), tenant: '7' },
      { _id: 'held', phase: 'Creating', lockedAt: new Date(now + 20_000), lockedBy: 'r~1#1.1', tenant: 7 },
      { _id: 'sleeping', ...asleep, progress: { error: { name: 'E', message: 'm', cause } } },
      { _id: 'parked', phase: 'Creating', lockedAt: PARKED_AT, progress: { error: { cause } } },
      { _id: 'other', phase: 'Creating', lockedAt: PARKED_AT, progress: { error: { cause: 'ffffffffffff' } } },
      { _id: 'rests', phase: 'Created', updatedAt: new Date(now), tenant: 8 },
      { _id: 'over', phase: 'Deleted', updatedAt: new Date(now), secret: 'x', customer: 'c' },
      { _id: 'stray', phase: 'Gone', updatedAt: new Date(now) },
    ])
    const listed = async (options: ListOptions) =>
      (await listDocuments(system(), { lifecycle: 'order', ...options })).documents.map(idOf).sort()
    expect(await listed({ condition: 'due' })).toEqual(['due', 'due now'])
    expect(await listed({ condition: 'held' })).toEqual(['held'])
    expect(await listed({ condition: 'sleeping' })).toEqual(['sleeping'])
    expect(await listed({ condition: 'asking' })).toEqual([])
    expect(await listed({ condition: 'parked' })).toEqual(['other', 'parked'])
    expect(await listed({ condition: 'resting' })).toEqual(['rests'])
    expect(await listed({ condition: 'final' })).toEqual(['over'])
    expect(await listed({ condition: 'unknownPhase' })).toEqual(['stray'])
    expect(await listed({ condition: 'removed' })).toEqual([])
    expect(await listed({ cause })).toEqual(['parked', 'sleeping'])
    expect(await listed({ cause, parked: true })).toEqual(['parked'])
    expect(await listed({ key: '7' })).toEqual(['due', 'held'])
    expect(await listed({ key: '"7"' })).toEqual(['due now'])
    expect(await listed({ key: '9' })).toEqual([])
    expect(await listed({ olderThan: '2h' })).toEqual(['due'])
    // The same with the index on causes.
    await orders().createIndex(
      { 'progress.error.cause': 1, phase: 1 },
      { partialFilterExpression: { 'progress.error.cause': { $exists: true } } },
    )
    expect(await listed({ cause })).toEqual(['parked', 'sleeping'])
    expect(await listed({ cause, phase: 'Created' })).toEqual([])

    const [bare] = (await listDocuments(system(), { lifecycle: 'order', phase: 'Deleted' })).documents
    expect(bare!.document).toEqual({ _id: 'over', phase: 'Deleted', updatedAt: new Date(now), customer: 'c' })
    const [whole] = (await listDocuments(system(), { lifecycle: 'order', phase: 'Deleted', payload: true })).documents
    expect(whole!.document).toMatchObject({ secret: 'x' })

    for (const [options, problem] of [
      [{ condition: 'broken' }, 'condition (--condition): expected one of due, held'],
      [{ cause: 'x' }, 'cause (--cause): expected 12 hex digits'],
      [{ olderThan: '2' }, 'expected a duration'],
      [{ lifecycle: 'thing', key: '7' }, 'expected a lifecycle with limitBy, got thing'],
      [
        { lifecycle: 'thing', filter: { printer: 'p7' } },
        "no index serves a filter of thing; it would read the whole collection; search: ['printer']",
      ],
      [{ filter: { printer: 'p7' } }, 'expected a filter with a value of customer or city'],
      [{ filter: { customer: { $ne: 'x' } } }, 'expected a filter with a value of customer or city'],
      [{ filter: { customer: /x/ } }, 'expected a filter with a value of customer or city'],
      [{ filter: { customer: 'x', $where: '1' } }, "'$where' isn't among the operators"],
    ] as const) {
      await expect(listed(options as never)).rejects.toThrow(UsageError)
      await expect(listed(options as never)).rejects.toThrow(problem)
    }
    await orders().dropIndex('customer_1__id_1')
    await expect(listed({ filter: { customer: 'c' } })).rejects.toThrow(Refused)
  })

  test('those in trouble are read from their part of the claim index, and a page reads a bounded number', async () => {
    const resting = Array.from({ length: 3_000 }, (_, i) => ({
      _id: i,
      phase: 'Created',
      lockedAt: null,
      updatedAt: at(i),
    }))
    const asleep = { phase: 'Creating', lockedAt: new Date(Date.now() + HOUR), lockedBy: null }
    const failing = Array.from({ length: 20 }, (_, i) => ({
      _id: `f${i}`,
      ...asleep,
      progress: { error: { message: 'm' } },
    }))
    await prepared([...resting, ...failing] as never)
    const read = async (options: ListOptions) => {
      const aggregate = jest.spyOn(Collection.prototype, 'aggregate')
      const { documents } = await listDocuments(system(), { lifecycle: 'order', ...options })
      const calls = aggregate.mock.calls.map(([pipeline, { hint } = {}]) => [pipeline, hint] as const)
      aggregate.mockRestore()
      let [keys, docs] = [0, 0]
      for (const [pipeline, hint] of calls) {
        const explained = await orders().aggregate(pipeline, { hint: hint! }).explain('executionStats')
        const stats = statsOf(explained)
        keys += stats.totalKeysExamined
        docs += stats.totalDocsExamined
      }
      return { listed: documents.length, keys, docs }
    }
    for (const trouble of ['failing', 'waiting', 'parked', 'bugs'] as const) {
      const { keys, docs } = await read({ [trouble]: true })
      expect([trouble, keys < 200, docs < 100]).toEqual([trouble, true, true])
    }
    const page = await read({ phase: 'Created', limit: 50 })
    expect(page).toMatchObject({ listed: 50 })
    expect(page.docs).toBeLessThanOrEqual(60)
    const nothing = await read({ state: 'none', limit: 50 })
    expect(nothing.docs).toBeLessThanOrEqual(3_100)
  })
})

/** The counts of the first stage, wherever this server puts them. */
function statsOf(explained: Document): { totalKeysExamined: number; totalDocsExamined: number } {
  const stats = explained['executionStats'] ?? explained['stages']?.[0]?.['$cursor']?.executionStats
  return stats as { totalKeysExamined: number; totalDocsExamined: number }
}
