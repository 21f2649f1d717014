import { describe, expect, test } from '@jest/globals'
import { type Document, Long } from 'mongodb'
import type { EndKind } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import {
  again,
  blank,
  endOf,
  held,
  lockedCollection,
  moveTo,
  PHASE,
  park,
  read,
  verdictsOf,
  wait,
  writer,
} from './fixture.js'

describe('ends that are written together', () => {
  const database = useDatabase()

  test('each document gets its own set, ms and pause, whatever its _id is', async () => {
    const collection = await lockedCollection(database.db)
    const leases = await held(collection, blank(40))
    const ends = leases.map((lease, n) => endOf(lease, again(), { set: { mine: { n } }, ms: n }))
    expect(new Set(await verdictsOf(collection, ends))).toEqual(new Set(['recorded']))
    for (const [n, lease] of leases.entries()) {
      const document = await read(collection, lease.id)
      expect(document).toMatchObject({ mine: { n }, lockedBy: lease.token, fence: lease.fence })
      expect(document['progress'].history.at(-1)).toMatchObject({ ms: n })
    }
  })

  test('some set the same fields, some others: each document gets exactly what it set', async () => {
    const collection = await lockedCollection(database.db)
    const leases = await held(collection, Array(12).fill({ mine: { kept: 1 }, other: 'kept' }))
    const sets: Document[] = [{ mine: { n: 1 } }, { mine: '$other' }, { other: 2, mine: 3 }, { a: 1, b: 2, c: 3 }]
    const ends = leases.map((lease, n) => endOf(lease, again(), { set: sets[n % 4], ms: n === 7 ? 70 : 1 }))
    expect(new Set(await verdictsOf(collection, ends))).toEqual(new Set(['recorded']))
    const stored = await Promise.all(leases.map(({ id }) => read(collection, id)))
    const owners = ({ mine, other, a, b, c }: Document) => JSON.parse(JSON.stringify({ mine, other, a, b, c }))
    expect(stored.map(owners)).toEqual(leases.map((_, n) => ({ mine: { kept: 1 }, other: 'kept', ...sets[n % 4] })))
    expect(stored.map((one) => one['progress'].history.at(-1).ms)).toEqual(leases.map((_, n) => (n === 7 ? 70 : 1)))
  })

  test('some lost: the verdicts say exactly which, and the lost ones are not touched', async () => {
    const collection = await lockedCollection(database.db)
    const leases = await held(collection, blank(10))
    await collection.updateMany({ _id: { $in: [2, 5] as never[] } }, { $set: { lockedBy: 'other#1.1' } })
    await collection.deleteOne({ _id: 7 as never })
    const ends = leases.map((lease) => endOf(lease, again()))
    const verdicts = await verdictsOf(collection, ends)
    const expected = leases.map((_, n) => ([2, 5, 7].includes(n) ? 'lost' : 'recorded'))
    expect(verdicts).toEqual(expected)
    expect(leases.map((lease) => lease.leftMs() > 0)).toEqual(expected.map((kind) => kind === 'recorded'))
    expect(await read(collection, 5)).toMatchObject({ lockedBy: 'other#1.1', progress: { claims: 1 } })
  })

  test("some lost, and a recorded one taken by another at once: moved on where it can't be told, never guessed", async () => {
    const collection = await lockedCollection(database.db)
    const leases = await held(collection, blank(3))
    await collection.updateOne({ _id: 0 as never }, { $set: { lockedBy: 'other#1.1' } })
    // Another replica is quicker than the read-back: document 2 is recorded, then its trace is overwritten.
    const racing = new Proxy(collection, {
      get(target, name) {
        if (name !== 'find') return Reflect.get(target, name).bind?.(target) ?? Reflect.get(target, name)
        return (...args: [Document, Document]) => ({
          toArray: async () => {
            const taken = { $set: { lockedBy: 'third#1.1', 'progress.endedBy': 'third#1.0' } }
            await target.updateOne({ _id: 2 as never }, taken)
            return target.find(...args).toArray()
          },
        })
      },
    })
    const ends = leases.map((lease) => endOf(lease, wait()))
    expect(await verdictsOf(racing, ends)).toEqual(['movedOn', 'recorded', 'movedOn'])
  })

  test('of many kinds and tokens in one flush: each group by its own token only', async () => {
    const collection = await lockedCollection(database.db)
    const kinds = [again(), wait(), moveTo('Next'), park]
    const leases = await held(collection, blank(12))
    const ends = leases.map((lease, n) => endOf(lease, kinds[n % 4]!))
    const mixed = new Set(await verdictsOf(collection, ends))
    expect(mixed).toEqual(new Set(['recorded']))
    const outcomes = (await collection.find().sort({ _id: 1 }).toArray()).map(
      (d) => d['progress'].history.at(-1).outcome,
    )
    expect(outcomes).toEqual(leases.map((_, n) => ['again', 'wait', 'moveTo', 'park'][n % 4]))
  })

  test("a deadline's compensation goes by each owner's own state, also where two look alike as text", async () => {
    const collection = await lockedCollection(database.db)
    const states = [new Date(5), new Date(5).toJSON(), Long.fromNumber(7), '7', 9n, { $numberInt: '9' }, null]
    const leases = await held(collection, states.map((state) => ({ state })) as Document[])
    const ends = leases.map((lease, n) =>
      endOf(lease, { ...moveTo('Next'), setState: { ifState: states[n], state: 'Deleted' } } as EndKind),
    )
    expect(new Set(await verdictsOf(collection, ends))).toEqual(new Set(['recorded']))
    expect((await collection.find().toArray()).map(({ state }) => state)).toEqual(states.map(() => 'Deleted'))
  })

  test("a group refused for one document's sake (its validator, 121): all but the culprit are recorded", async () => {
    await database.db.createCollection('Thing', { validator: { n: { $ne: 5 } } })
    const collection = await lockedCollection(database.db)
    const leases = await held(collection, blank(9))
    const ends = leases.map((lease, n) => endOf(lease, again(), { set: { n } }))
    const verdicts = await writer(collection).write(ends)
    for (const [n, end] of ends.entries())
      expect([n, verdicts.get(end)!.kind]).toEqual([n, n === 5 ? 'rejected' : 'recorded'])
    expect(verdicts.get(ends[5]!)).toMatchObject({ error: { code: 121 } })
    for (const { lease } of ends) {
      expect(lease.leftMs()).toBeGreaterThan(0)
      expect((await read(collection, lease.id))['lockedBy']).toBe(lease.token)
    }
    const histories = (await collection.find().toArray()).map((d) => d['progress'].history?.length ?? 0)
    expect(histories.sort()).toEqual([0, 1, 1, 1, 1, 1, 1, 1, 1])
  })

  test('a group refused because an owner replaced one progress by text (40400): all but the culprit', async () => {
    const collection = await lockedCollection(database.db)
    const leases = await held(collection, blank(5))
    await collection.updateOne({ _id: 2 as never }, { $set: { progress: 'mine' } })
    const ends = leases.map((lease) => endOf(lease, moveTo('Next')))
    expect(await verdictsOf(collection, ends)).toEqual(['recorded', 'recorded', 'rejected', 'recorded', 'recorded'])
    expect(await read(collection, 2)).toMatchObject({ progress: 'mine', phase: PHASE })
  })
})
