import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { Collection, type Document, MongoServerError } from 'mongodb'
import type { Replica, ReplicaOptions } from '../../src/index.js'
import {
  copyFlows,
  FLOWS_COLLECTION,
  type FlowPart,
  flowId,
  REPLICAS_COLLECTION,
  storeFlows,
} from '../../src/lock/index.js'
import { readFlow, sparkline } from '../../src/operations/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { replicaOf, ShiftedClock, things, thingWith } from '../support/thing.js'

const MINUTE = 60_000
const minuteOf = (ms: number) => new Date(Math.floor(ms / MINUTE) * MINUTE)

describe('flow', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  const database = useDatabase()
  const flows = () => database.db.collection<Document & { _id: string }>(FLOWS_COLLECTION)
  const beats = () => database.db.collection<Document & { _id: string }>(REPLICAS_COLLECTION)
  const sum = (all: readonly { readonly n: number }[]) => all.reduce((total, { n }) => total + n, 0)

  const part = (key: string, at: Date, n: number, more: Partial<FlowPart['sums']> = {}): FlowPart => ({
    ...{ lifecycle: 'thing', at, key },
    sums: { moves: [{ from: 'Creating', to: 'Created', outcome: 'moveTo', n }], causes: [], times: [], ...more },
  })

  /** A replica that ticks when it is told to, as if by itself, on a clock of its own. */
  async function present(options: Partial<ReplicaOptions> = {}, db = database.db) {
    const clock = new ShiftedClock()
    const lifecycle = thingWith(async ({ _id }, step) => {
      if (_id.startsWith('bad')) throw new Error(`no van for ${_id}`)
      return step.moveTo('Created')
    })
    const replica = replicaOf(db, lifecycle, { clock, doorbell: 'off', sweepEvery: '0s', ...options })
    replicas.push(replica)
    await replica.prepare()
    replica.wakeBetweenTicks()
    return { replica, clock }
  }

  async function work(replica: Replica, ids: readonly string[]) {
    await things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating' })))
    await replica.tick()
    await replica.idle()
  }

  test('a replica that stops leaves what it has counted, with the causes and its version', async () => {
    const { replica } = await present({ appVersion: '2.7.0' })
    await replica.tick()
    await eventually(async () => expect(await beats().countDocuments()).toBe(1))
    await work(replica, ['a', 'b', 'bad-1', 'bad-2'])
    await replica.stop()
    const flow = await readFlow(database.db, { lifecycle: 'thing', minutes: 5 })
    expect(flow.moves).toEqual([
      { from: 'Creating', to: 'Created', outcome: 'moveTo', n: 2 },
      { from: 'Creating', to: 'Creating', outcome: 'error', n: 2 },
    ])
    const { progress } = (await things(database.db).findOne({ _id: 'bad-1' })) as Document
    expect(Object.entries(flow.causes)).toEqual([
      [
        progress['error'].cause,
        { kind: 'error', text: 'no van for #', n: 2, byInterval: expect.any(Array), versions: ['2.7.0'] },
      ],
    ])
    expect(sum(Object.values(flow.causes)[0]!.byInterval.map((n) => ({ n })))).toBe(2)
    expect(flow.phases['Creating']).toMatchObject({ left: 2, p50Ms: expect.any(Number), p95Ms: expect.any(Number) })
    expect(flow.intervals.reduce((n, { recorded }) => n + recorded, 0)).toBe(4)
    expect(flow.uncounted).toEqual([])
  })

  test('replicas that stop together lose nothing, and each removes its document only after that', async () => {
    const each = []
    for (let i = 0; i < 4; i += 1) {
      const { replica } = await present()
      await replica.tick()
      await eventually(async () => expect(await beats().countDocuments()).toBe(i + 1))
      // They share the work: some is left for another one.
      await work(
        replica,
        Array.from({ length: 20 }, (_, n) => `${i}-${n}`),
      )
      each.push(replica)
    }
    await Promise.all(each.map((replica) => replica.stop()))
    const minutes = await flows()
      .find({ _id: /^minute/ })
      .toArray()
    const stored = new Set(minutes.flatMap(({ parts }) => parts.map((key: string) => key.replace(/#\d+$/, ''))))
    expect(stored).toEqual(new Set(each.map((replica) => replica.status().identity)))
    expect(await beats().countDocuments()).toBe(0)
  })

  test('a replica that can not store its last minutes leaves them in its document, for the duty', async () => {
    const { replica } = await present()
    await replica.tick()
    await eventually(async () => expect(await beats().countDocuments()).toBe(1))
    await work(replica, ['a', 'b'])
    const refused = jest.spyOn(Collection.prototype, 'bulkWrite').mockImplementation(function (this: Collection) {
      return this.collectionName === FLOWS_COLLECTION
        ? Promise.reject(new MongoServerError({ code: 50, message: 'too slow' }))
        : Promise.reject(new Error('expected no other writes'))
    })
    await replica.stop()
    refused.mockRestore()
    expect(await beats().findOne()).toMatchObject({ flow: [{ lifecycles: [{ name: 'thing' }] }] })
    await copyFlows(database.db, new Date())
    expect(sum((await readFlow(database.db, { lifecycle: 'thing', minutes: 5 })).moves)).toBe(2)
  })

  test('parts are added once, however often and by however many; late ones too, and the hour with them', async () => {
    const now = new Date()
    const [early, late] = [minuteOf(now.getTime() - 5 * MINUTE), minuteOf(now.getTime() - 90 * MINUTE)]
    const parts = [part('a#1', early, 2), part('b#1', early, 3), part('a#2', late, 7)]
    await Promise.all([1, 2, 3].map(() => storeFlows(database.db, parts, now)))
    await storeFlows(database.db, [...parts, part('c#1', late, 1)], now)
    await storeFlows(database.db, parts, now)
    const minutes = await flows()
      .find({ _id: /^minute/ })
      .sort({ _id: 1 })
      .toArray()
    expect(minutes.map(({ _id, moves }) => [_id, sum(moves)])).toEqual([
      [flowId('minute', late, 'thing'), 8],
      [flowId('minute', early, 'thing'), 5],
    ])
    const { moves, intervals } = await readFlow(database.db, { lifecycle: 'thing', hours: 3 })
    expect(sum(moves)).toBe(13)
    expect(intervals).toHaveLength(3)
    expect((await readFlow(database.db, { lifecycle: 'thing', minutes: 1_440 })).intervals).toHaveLength(1_440)
  })

  test('an hour that its writer left out, because it ended in between, is added up by the next one', async () => {
    const now = new Date()
    const parts = [
      part('a#1', minuteOf(now.getTime() - 2 * MINUTE), 2),
      part('b#1', minuteOf(now.getTime() - MINUTE), 3),
    ]
    const write = Collection.prototype.bulkWrite
    let writes = 0
    const dying = jest.spyOn(Collection.prototype, 'bulkWrite').mockImplementation(function (
      this: Collection,
      ...args
    ) {
      writes += 1
      return writes === 1 ? write.apply(this, args) : Promise.reject(new Error('killed'))
    })
    await expect(storeFlows(database.db, parts, now)).rejects.toThrow('killed')
    dying.mockRestore()
    expect(await storeFlows(database.db, parts, now)).toBe(0)
    const hours = await flows().find({ _id: /^hour/ }).toArray()
    expect(sum(hours.flatMap(({ moves }) => moves))).toBe(5)
  })

  test('of two that write the same minute, each part is in it once in the end', async () => {
    const now = new Date()
    const at = minuteOf(now.getTime() - MINUTE)
    for (let round = 0; round < 5; round += 1) {
      const mine = part(`mine#${round}`, at, 1)
      const theirs = part(`theirs#${round}`, at, 1)
      await Promise.all([storeFlows(database.db, [mine], now), storeFlows(database.db, [theirs], now)])
      // Both stand in beats until they are copied: the next run of the duty adds what was left out.
      await storeFlows(database.db, [mine, theirs], now)
    }
    const [minute] = await flows()
      .find({ _id: /^minute/ })
      .toArray()
    expect([sum(minute!['moves']), minute!['parts'].length]).toEqual([10, 10])
  })

  test('minutes stay for a day and hours for thirty', async () => {
    const hour = 60 * MINUTE
    const now = new Date()
    const ago = (ms: number) => new Date(now.getTime() - ms)
    const all = [
      ['minute', 23 * hour],
      ['minute', 25 * hour],
      ['hour', 29 * 24 * hour],
      ['hour', 31 * 24 * hour],
    ] as const
    await flows().insertMany(all.map(([unit, ms]) => ({ _id: flowId(unit, ago(ms), 'thing') })))
    expect(await copyFlows(database.db, now)).toEqual({ copied: 0, removed: 2 })
    const left = (await flows().find().toArray()).map(({ _id }) => _id)
    expect(left.sort()).toEqual([
      flowId('hour', ago(29 * 24 * hour), 'thing'),
      flowId('minute', ago(23 * hour), 'thing'),
    ])
  })

  test('a replica of an older version is named, not guessed; odd documents count as nothing', async () => {
    const seenAt = new Date()
    const lifecycles = [{ name: 'thing', phases: ['Creating'], places: 1, free: 1, held: 0 }]
    await beats().insertMany([
      { _id: 'old~1', everyMs: 10_000, seenAt, lifecycles },
      { _id: 'new~1', everyMs: 10_000, seenAt, lifecycles: [{ ...lifecycles[0], graph: '0123456789ab' }] },
      {
        _id: 'odd~1',
        everyMs: 'x',
        seenAt: 5,
        lifecycles: 'x',
        flow: [5, null, { seq: 1, at: seenAt, lifecycles: [{ name: 'thing', moves: 'x' }] }],
      },
      { _id: 'odd~2', flow: { lifecycles: 5 } },
    ])
    await flows().insertOne({ _id: flowId('minute', seenAt, 'thing'), moves: [{ from: 5 }], causes: 7, times: [{}] })
    const flow = await readFlow(database.db, { lifecycle: 'thing' })
    expect(flow.uncounted).toEqual(['old~1'])
    expect([flow.moves, flow.phases, flow.causes, flow.perMinute]).toEqual([[], {}, {}, 0])
    await copyFlows(database.db, new Date())
  })

  test('times of phases: half, and 95 of a hundred, within a factor of two', async () => {
    const now = new Date()
    const at = minuteOf(now.getTime() - MINUTE)
    // 90 of 1 s, 10 of a minute.
    const times = [{ phase: 'Creating', low: 9, n: [90, 0, 0, 0, 0, 0, 10] }]
    await storeFlows(database.db, [part('a#1', at, 100, { times })], now)
    const { phases } = await readFlow(database.db, { lifecycle: 'thing', minutes: 10 })
    expect(phases['Creating']).toMatchObject({ left: 100, p50Ms: 768, p95Ms: 49_152 })
    expect(phases['Creating']!.rate).toBeCloseTo(10, -1)
  })

  test('requests out of range are refused', async () => {
    for (const [request, problem] of [
      [{ minutes: 0 }, /minutes: expected/],
      [{ minutes: 1_441 }, /minutes/],
      [{ hours: 1.5 }, /hours/],
      [{ minutes: 5, hours: 5 }, /got both/],
    ] as const)
      await expect(readFlow(database.db, { lifecycle: 'thing', ...request })).rejects.toThrow(problem)
  })

  test('a sparkline', () => {
    expect(sparkline([0, 1, 2, 4, 8])).toBe(' ▁▂▄█')
    expect(sparkline([0, 0])).toBe('  ')
    expect(sparkline([])).toBe('')
  })
})
