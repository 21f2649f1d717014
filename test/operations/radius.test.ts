import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { FLOWS_COLLECTION, flowId, LIMITS_COLLECTION } from '../../src/lock/index.js'
import { blastRadius } from '../../src/operations/bulk/radius.js'
import { pauseWork, previewOperation } from '../../src/operations/index.js'
import { ordersWith, parcelsWith, useChildren } from '../phases/children-fixture.js'
import { useDatabase } from '../support/database.js'
import { thingOf } from '../support/thing.js'
import { ASLEEP, BulkWorld, HELD, many, PARKED } from './bulk-world.js'

describe('the blast radius of an operation', () => {
  const database = useDatabase()
  const collection = (name: string) => database.db.collection<Document & { _id: string }>(name)

  /** Documents of every kind that an action may leave alone. */
  async function world() {
    const w = await BulkWorld.of(database.db)
    const odd = [
      { _id: 'due', phase: 'Creating' },
      { _id: 'held', phase: 'Creating', ...HELD },
      { _id: 'rests', phase: 'Created', state: 'Deleted' },
      { _id: 'odd', phase: 'Creating', lockedAt: PARKED.lockedAt, progress: 'theirs' },
      { _id: 'wants', phase: 'Creating', ...ASLEEP, state: 'Deleted' },
    ]
    await w.things.insertMany([...many(4, ASLEEP, 'a'), ...many(3, PARKED, 'p'), ...odd])
    await pauseWork(w.system, { lifecycle: 'thing', id: 'due', by: 'ana' })
    for (const by of ['bob', 'cid']) await pauseWork(w.system, { lifecycle: 'thing', id: 'a00001', by })
    return w
  }

  const request = (action: string, options: object = {}) =>
    ({ action, selection: { lifecycle: 'thing', all: true }, options, by: 'ana', rate: 100_000 }) as never

  test.each<[string, object, number, number]>([
    ['wake', {}, 5, 0],
    ['unpark', {}, 3, 0],
    ['set-state', { state: 'Deleted' }, 10, 2],
    ['redo', { set: { n: 1 } }, 9, 0],
    ['redo', { phase: 'Deleting' }, 10, 0],
    ['migrate', { phase: 'Created' }, 9, 1],
    ['pause', {}, 12, 0],
    ['resume', {}, 1, 10],
    ['cancel', {}, 1, 0],
    ['remove', {}, 11, 0],
  ])('of %s %j is what the operation then does', async (action, options, done, unchanged) => {
    const w = await world()
    const before = await w.things.find().toArray()
    const { radius, count } = await previewOperation(w.system, request(action, options))
    expect(await w.things.find().toArray()).toEqual(before)
    expect(count).toBe(12)
    expect(radius).toMatchObject({ looked: 12, sampledOf: null, done: { n: done }, unchanged: { n: unchanged } })
    const ended = await w.run(action, { all: true }, { options })
    expect(ended.counts).toEqual({
      ...{ seen: 12, done, unchanged, failed: 0 },
      skipped: radius.leftAlone.reduce((sum, { documents }) => sum + documents.n, 0),
    })
    const said = (one: { reason: string; n: number; examples: readonly unknown[] }) => JSON.stringify(one)
    const foretold = radius.leftAlone.map(({ reason, documents: { n }, examples }) => said({ reason, n, examples }))
    const happened = ended.troubles.map(({ reason, count: n, examples }) => said({ reason, n, examples }))
    expect(foretold.toSorted()).toEqual(happened.toSorted())
  })

  test('goes by phase, condition and cause', async () => {
    const w = await world()
    const { groups } = (await previewOperation(w.system, request('unpark'))).radius
    const group = (phase: string, condition: string, n: number, done: number) =>
      expect.objectContaining({ phase, condition, documents: { n }, done: { n: done } })
    expect(groups).toEqual([
      group('Creating', 'sleeping', 5, 0),
      group('Creating', 'parked', 3, 3),
      ...[group('Creating', 'due', 1, 0), group('Creating', 'held', 1, 0)],
      ...[group('Creating', 'broken', 1, 0), group('Created', 'resting', 1, 0)],
    ])
    expect(groups[1]!.cause).toEqual({ id: expect.stringMatching(/^[\da-f]{12}$/), text: 'no tape' })
  })

  test('of more than it may look at is estimated, and says of how many; pauses count the free places', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany([...many(60, ASLEEP, 'a'), ...many(60, PARKED, 'p')])
    const filter = { phase: 'Creating' }
    const of = (action: string) =>
      blastRadius(
        w.system,
        request(action),
        { model: w.system.models[0]!, filter, options: {}, count: 120 },
        { looked: 30, among: 100, children: 10 },
      )
    const radius = await of('wake')
    expect(radius).toMatchObject({
      looked: 30,
      sampledOf: 100,
      done: { about: true },
      unchanged: { n: 0, about: true },
    })
    const skipped = radius.leftAlone[0]!.documents.n
    expect(Math.abs(radius.done.n + skipped - 120)).toBeLessThanOrEqual(2)
    for (const { documents, done } of radius.groups) expect([documents.about, done.about]).toEqual([true, true])
    await collection('phaselock.lifecycles').updateOne({ _id: 'thing' }, [
      {
        $set: {
          pauses: {
            $map: {
              input: { $range: [0, 160] },
              in: {
                what: 'document',
                _id: { $toString: '$$this' },
                by: 'bob',
                reason: null,
                since: '$$NOW',
                until: null,
              },
            },
          },
        },
      },
    ])
    expect((await of('pause')).done).toEqual({ n: 40, about: true })
  })

  test('says how long it takes by its rate, the flow of the phases and their limits, and what is unknown', async () => {
    const model = thingOf({
      limits: ['api', { name: 'declared', slots: 2 }, 'slow', 'none'],
    }).model
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(60, PARKED))
    const system = { ...w.system, models: [model] }
    const time = async (action = 'unpark', more: object = {}) => {
      const asked = { ...(request(action) as object), rate: 10, ...more } as never
      return (await previewOperation(system, asked)).radius.time
    }
    expect(await time('unpark', { first: 5, watch: '10s' })).toMatchObject({
      ...{ leastMs: 6_000, watchesMs: 20_000 },
      phases: [
        {
          ...{ phase: 'Creating', documents: { n: 60 }, flowMs: null },
          limits: [
            { limit: 'api', ms: null, why: 'it has 0 of 1 slots' },
            { limit: 'declared', ms: null, why: 'no document has left the phase in the last hour' },
            { limit: 'none', ms: null, why: 'it has 0 of 1 slots' },
            { limit: 'slow', ms: null, why: 'it has 0 of 1 slots' },
          ],
        },
      ],
    })
    const at = new Date(Date.now() - 120_000)
    await collection(FLOWS_COLLECTION).insertOne({
      _id: flowId('minute', at, 'thing'),
      ...{ lifecycle: 'thing', at, parts: ['a#1'], causes: [] },
      moves: [{ from: 'Creating', to: 'Created', outcome: 'moveTo', n: 60 }],
      times: [{ phase: 'Creating', low: 10, n: [60] }],
    })
    await collection(LIMITS_COLLECTION).insertMany([
      { _id: 'slow', rate: { starts: 10, perMs: 60_000 } },
      { _id: 'api', slots: 4, paused: { by: 'ana', reason: 'tests', since: new Date(), until: null } },
    ] as never)
    const { phases, watchesMs } = await time()
    expect(watchesMs).toBeNull()
    expect(phases![0]!.limits).toMatchObject([
      { limit: 'api', ms: null, why: expect.stringContaining('paused by ana') },
      { limit: 'declared', ms: 30 * 1_536, why: null },
      { limit: 'none', ms: null },
      { limit: 'slow', ms: 360_000, why: null },
    ])
    // 60 in the last hour, of which the present minute has only begun.
    expect(phases![0]!.flowMs).toBeGreaterThan(58 * 60_000)
    expect(phases![0]!.flowMs).toBeLessThanOrEqual(60 * 60_000)
    expect((await time('remove')).phases).toEqual([])
    expect((await time('resume')).phases).toBeNull()
  })
})

describe('the blast radius of an operation on parents', () => {
  const { database, insert, prepared } = useChildren()

  test('says how many have open children, of up to a bound, and of which lifecycle that is unknown', async () => {
    const { lifecycle } = ordersWith()
    const children = parcelsWith(async (_doc, step) => step.park('no tape'))
    const replica = await prepared([lifecycle, children])
    await insert(['left', 'right'])
    await replica.runOnce()
    const selected = { model: lifecycle.model, filter: { phase: 'Shipping' }, options: {}, count: 1 }
    const asked = { action: 'remove', selection: { lifecycle: 'order', all: true }, by: 'ana' } as const
    const of = (models: readonly { readonly model: never }[], most = 10) =>
      blastRadius({ db: database.db, models: models.map(({ model }) => model) }, asked, selected, {
        ...{ looked: 10, among: 10, children: most },
      })
    const both = [lifecycle, children] as never
    expect((await of(both)).openChildren).toEqual([{ lifecycle: 'parcel', parents: { n: 1 }, children: { n: 2 } }])
    expect((await of(both, 1)).openChildren).toEqual([
      { lifecycle: 'parcel', parents: { n: 1, more: true }, children: { n: 1, more: true } },
    ])
    expect(await of([lifecycle] as never)).toMatchObject({ openChildren: [], unknownChildren: ['parcel'] })
  })
})
