import { afterEach, describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { lifecycleOf, Replica, type ReplicaOptions, type RunnableLifecycle } from '../../src/index.js'
import { graphsIn, LIFECYCLES_COLLECTION, REPLICAS_COLLECTION } from '../../src/lock/index.js'
import { listReplicas, type System, versionsMixed } from '../../src/operations/index.js'
import { graphDifferences } from '../../src/phases/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { recordingLogger } from '../support/thing.js'

describe('the versions that replicas run', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  const database = useDatabase()
  const entries = () => database.db.collection<Document & { _id: string }>(LIFECYCLES_COLLECTION)
  const beats = () => database.db.collection<Document & { _id: string }>(REPLICAS_COLLECTION)
  const system = async (): Promise<System> => ({ db: database.db, models: [first().model] })

  const first = (more: object = {}): RunnableLifecycle =>
    lifecycleOf<{ _id: string; state?: 'Lost' }>()
      .define({
        name: 'order',
        collection: 'Order',
        phases: { Packing: { next: ['Shipped'] }, Shipped: { final: true } },
        ...more,
      } as never)
      .handle({ Packing: async (_doc: unknown, step: any) => step.moveTo('Shipped') } as never)

  const second = (): RunnableLifecycle =>
    lifecycleOf<{ _id: string; state?: 'Lost' }>()
      .define({
        name: 'order',
        collection: 'Order',
        maxAttempts: 5,
        phases: {
          Checking: { next: ['Packing'], entry: true },
          Packing: { next: ['Shipped', 'Lost'], deadline: { after: '1h', moveTo: 'Lost' } },
          Shipped: { final: true },
          Lost: { rest: true },
        },
        rules: [{ when: 'Lost', from: ['Checking', 'Packing'], moveTo: 'Lost' }],
      })
      .handle({
        Checking: async (_doc, step) => step.moveTo('Packing'),
        Packing: async (_doc, step) => step.moveTo('Shipped'),
      })

  async function present(lifecycle: RunnableLifecycle, options: Partial<ReplicaOptions> = {}) {
    const more = { doorbell: 'off', sweepEvery: '0s', logger: recordingLogger() } as const
    const replica = new Replica({ db: database.db, lifecycles: [lifecycle], ...more, ...options })
    replicas.push(replica)
    await replica.prepare()
    replica.wakeBetweenTicks()
    await replica.tick()
    await eventually(async () => expect(await beats().findOne({ _id: replica.identity })).not.toBeNull())
    return replica.identity
  }

  test('a replica says the version of its app and the digest of each definition, which is kept once', async () => {
    const name = await present(first(), { appVersion: '2.7.0' })
    await present(first(), { appVersion: '2.7.0' })
    const { replicas: listed } = await listReplicas(await system(), { name })
    expect(listed[0]).toMatchObject({
      appVersion: '2.7.0',
      lifecycles: [{ graph: expect.stringMatching(/^[0-9a-f]{12}$/) }],
    })
    const kept = graphsIn((await entries().findOne({ _id: 'order' }))!['graphs'])
    expect(kept.map(({ graph }) => graph)).toEqual([listed[0]!.lifecycles[0]!.graph])
    expect(await versionsMixed(await system())).toEqual([])
  })

  test('two that run different definitions: which, since when, the difference in words, and the phases that only some handle', async () => {
    const older = await present(first(), { name: 'api-1', appVersion: '2.7.0' })
    const newer = await present(second(), { name: 'api-2', appVersion: '2.8.0' })
    const [mixed, ...others] = await versionsMixed(await system())
    expect(others).toEqual([])
    expect(mixed).toMatchObject({
      lifecycle: 'order',
      graphs: [
        { replicas: [newer], versions: ['2.8.0'], since: expect.any(Date), differences: [] },
        { replicas: [older], versions: ['2.7.0'], since: expect.any(Date) },
      ],
      onlySome: [{ phase: 'Checking', replicas: [newer] }],
    })
    expect(mixed!.graphs[1]!.differences).toEqual(
      expect.arrayContaining([
        'phase Checking is gone',
        'phase Lost is gone',
        'Packing: next is Shipped, was Shipped, Lost',
        expect.stringMatching(/^Packing: deadline is absent, was \{/),
        "rule 'Lost' from Checking, Packing to Lost is gone".replaceAll("'", '"'),
        'maxAttempts is 20, was 5',
      ]),
    )
  })

  test('replicas of an older version say no graph: they alone mix nothing, but their phases count', async () => {
    const name = await present(second())
    const old = {
      ...{ everyMs: 10_000, seenAt: new Date(), startedAt: new Date(), version: '0.1.0', host: 'h', pid: 1 },
      lifecycles: [{ name: 'order', phases: ['Checking', 'Packing'], places: 1, free: 1, held: 0 }],
    }
    await beats().insertOne({ _id: 'old~1', ...old })
    expect(await versionsMixed(await system())).toEqual([])
    await beats().updateOne({ _id: 'old~1' }, { $set: { 'lifecycles.0.phases': ['Packing'] } })
    const [mixed] = await versionsMixed(await system())
    expect(mixed).toMatchObject({
      graphs: [
        { replicas: [name] },
        { graph: null, replicas: ['old~1'], versions: ['?'], since: null, differences: [] },
      ],
      onlySome: [{ phase: 'Checking', replicas: [name] }],
    })
    // One that is dead mixes nothing.
    await beats().updateOne({ _id: 'old~1' }, { $set: { seenAt: new Date(0) } })
    expect(await versionsMixed(await system())).toEqual([])
  })

  test('the newest ten definitions are kept, whatever a person has put there', async () => {
    await present(first())
    await entries().updateOne({ _id: 'order' }, { $set: { graphs: 'x' } })
    for (let maxAttempts = 1; maxAttempts <= 12; maxAttempts += 1) {
      const replica = new Replica({ db: database.db, lifecycles: [first({ maxAttempts })], logger: recordingLogger() })
      await replica.prepare()
      await replica.stop()
    }
    const kept = graphsIn((await entries().findOne({ _id: 'order' }))!['graphs'])
    expect(kept.map(({ of }) => of['maxAttempts'])).toEqual([3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
  })

  test('differences of entries that people have changed: never an error, and a bounded number of lines', () => {
    const odd = [
      {},
      { graph: 5, rules: 'x' },
      { graph: [null, { name: 5 }], rules: [{}] },
      { graph: [[]], maxAttempts: {} },
    ]
    for (const a of odd) for (const b of odd) expect(graphDifferences(a, b)).toEqual(expect.any(Array))
    const phases = Array.from({ length: 500 }, (_, i) => ({ name: `P${i}`, kind: 'working' }))
    expect(graphDifferences({ graph: [] }, { graph: phases })).toHaveLength(51)
  })
})
