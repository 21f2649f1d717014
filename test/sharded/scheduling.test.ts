import { afterAll, afterEach, beforeAll, beforeEach, expect, jest, test } from '@jest/globals'
import { type Db, type Document, MongoClient } from 'mongodb'
import { lifecycleOf, OwnerClient, Replica, type RunnableLifecycle, silentLogger } from '../../src/index.js'
import {
  beginOperation,
  operationLifecycle,
  operationNamed,
  retryCallbacks,
  showDocument,
  undoOperation,
} from '../../src/operations/index.js'
import { backDate } from '../../src/testing/index.js'
import { sleep } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { chunksOf, move, shard } from './chunks.ts'
import { ShardedCluster } from './cluster.ts'
import { describeWithMongos } from './mongos.js'

jest.setTimeout(120_000)

interface Order {
  _id: string
  edition?: number
  state?: 'Deleted'
}
interface Parcel {
  _id: string
  tenant: string
  priority: 'high' | 'low'
  state?: 'Deleted'
}

const parcel = lifecycleOf<Parcel>().define({
  name: 'parcel',
  collection: 'Parcel',
  child: true,
  phases: {
    Packing: { next: ['Packed'] },
    Packed: { rest: true },
    Deleting: { next: ['Gone'] },
    Gone: { final: true, failed: true },
  },
  rules: [{ when: 'Deleted', from: ['Packing', 'Packed'], moveTo: 'Deleting' }],
  ...{ limitBy: 'tenant', each: 1, priorityBy: 'priority', fairBy: 'tenant', callbacks: ['onMoved', 'onRemoved'] },
})
/** Without a rule or callbacks: its parent deletes it. */
const label = lifecycleOf<{ _id: string }>().define({
  name: 'label',
  collection: 'Label',
  child: true,
  phases: { Printing: { next: ['Printed'] }, Printed: { rest: true } },
})
const order = lifecycleOf<Order>().define({
  name: 'order',
  collection: 'Order',
  phases: {
    Asking: { next: ['Shipping'], entry: true },
    Shipping: { next: ['Shipped'], limits: [{ name: 'carrier', slots: 2 }] },
    Shipped: { rest: true },
    Deleting: { next: ['Gone'] },
    Gone: { final: true },
  },
  rules: [{ when: 'Deleted', from: ['Asking', 'Shipping', 'Shipped'], moveTo: 'Deleting' }],
  callbacks: ['onMoved', 'onRemoved'],
  events: 'full',
})
const NAMES = ['Order', 'Parcel', 'Label']
/** Those of Phaselock's own that may be sharded. */
const OWN = ['operations', 'operations.changes', 'replicas', 'events', 'audit'].map((name) => `phaselock.${name}`)
const KEYS = ['0', '1', '2', '3', '4', '5']

describeWithMongos('what schedulers have, in sharded collections', () => {
  let cluster: ShardedCluster
  let monitored: MongoClient
  /** Writes of several documents to sharded collections. */
  const together: string[] = []
  const replicas: Replica[] = []
  const told: string[] = []
  const packed: string[] = []
  const stopping: (() => Promise<unknown>)[] = []
  beforeAll(async () => {
    cluster = await ShardedCluster.start()
    monitored = new MongoClient(cluster.uris[0], { monitorCommands: true })
    monitored.on('commandStarted', ({ commandName, command }) => {
      const isOfMany = (one: Document) => one['multi'] === true || one['limit'] === 0
      const writes = [command['updates'] ?? command['deletes'] ?? []].flat()
      if (NAMES.includes(command[commandName]) && writes.some(isOfMany))
        together.push(`${command[commandName]}: ${JSON.stringify(writes[0].q)}`)
    })
  }, 240_000)
  const database = useDatabase(() => cluster.uris[0])
  let db: Db
  beforeEach(() => {
    db = monitored.db(database.db.databaseName)
    for (const list of [together, told, packed]) list.length = 0
  })
  afterEach(async () => {
    for (const stop of stopping.splice(0)) await stop()
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  afterAll(async () => {
    await monitored?.close()
    await cluster?.close()
  }, 60_000)

  const onMoved = ({ lifecycle, id, to }: { lifecycle: string; id: unknown; to: string }) =>
    void told.push(`${lifecycle} ${id} > ${to}`)
  const onRemoved = ({ lifecycle, id }: { lifecycle: string; id: unknown }) => void told.push(`${lifecycle} ${id} gone`)
  const orders = () =>
    order.handle(
      {
        Asking: async (_doc, step) =>
          step.answer ? step.moveTo('Shipping') : step.ask({ question: 'Ship it?', options: ['yes', 'no'] }),
        Shipping: async (_doc, step) => {
          const labels = KEYS.map((key) => label.child(key, {}))
          const some = KEYS.map((key) => parcel.child(key, { tenant: Number(key) % 2 ? 'a' : 'b', priority: 'high' }))
          await step.children([...some, ...labels])
          const ended = await step.childrenDone({ rule: 'allDone' })
          return ended.done ? step.moveTo('Shipped') : step.wait(ended.text)
        },
        Deleting: async (_doc, step) => {
          const gone = await step.removeChildren()
          return gone.done ? step.moveTo('Gone') : step.wait(gone.text)
        },
      },
      { onMoved, onRemoved },
    )
  const parcels = () =>
    parcel.handle(
      {
        Packing: async (doc, step) => {
          packed.push(doc._id)
          return step.moveTo('Packed')
        },
        Deleting: async (_doc, step) => step.moveTo('Gone'),
      },
      { onMoved, onRemoved },
    )
  const labels = () => label.handle({ Printing: async (_doc, step) => step.moveTo('Printed') })
  async function prepared(...lifecycles: RunnableLifecycle[]): Promise<Replica> {
    const replica = new Replica({ db, lifecycles, logger: silentLogger, doorbell: 'off' })
    replicas.push(replica)
    await replica.prepare()
    return replica
  }
  const owner = () => new OwnerClient<Order>(db, order.model, { doorbell: 'off' })
  const system = () => ({ db, models: [order.model, parcel.model, label.model], doorbell: 'off' as const })
  const until = (replicas: readonly Replica[], what: () => Promise<void>) =>
    eventually(
      async () => {
        for (const replica of replicas) await replica.runOnce()
        await what()
      },
      { timeoutMs: 60_000 },
    )
  const count = (name: string, which: object = {}) => db.collection(name).countDocuments(which)
  /** By reading them: `distinct` also finds what a chunk has left behind. */
  const phasesOf = async (name: string) =>
    (await db.collection(name).find().toArray()).map(({ phase }): string => phase)

  /** A chunk of each collection after the other, back and forth. Resolves to how many have moved. */
  async function moveChunks(signal: AbortSignal): Promise<number> {
    let moved = 0
    for (let n = 0; !signal.aborted; n += 1) {
      const name = NAMES[n % NAMES.length]!
      const chunks = await chunksOf(database.db, name)
      const chunk = chunks[Math.floor(n / NAMES.length) % chunks.length]!
      await move(database.db, name, chunk, { waitForDelete: true }).then(
        () => (moved += 1),
        () => sleep(100), // refused, as the one before isn't over
      )
    }
    return moved
  }

  test.each([
    ['stand still', 0],
    ['move', 10],
  ])(
    'questions, children, limits, ranks, turns, callbacks and removals write to each document by itself, while chunks %s',
    async (_, least) => {
      for (const name of NAMES) await shard(database.db, name, { _id: 'hashed' })
      const over = new AbortController()
      const moving = least > 0 ? moveChunks(over.signal) : Promise.resolve(0)
      stopping.push(() => {
        over.abort()
        return moving
      })
      const replica = await prepared(orders(), parcels(), labels())
      const ids = ['a', 'b', 'c']
      for (const _id of ids) await owner().insert({ _id, edition: 1 }, { onDuplicate: 'ignore' })
      await until([replica], async () =>
        expect(await count('Order', { 'progress.question.id': { $exists: true } })).toBe(3),
      )
      for (const onDuplicate of ['ignore', 'wake', 'replaceWaiting', 'runAgain'] as const)
        await owner().insert({ _id: 'a', edition: 2 }, { onDuplicate })
      await until([replica], async () =>
        expect(await count('Order', { 'progress.question.id': { $exists: true } })).toBe(3),
      )
      for (const _id of ids)
        expect(await owner().answer(_id, { option: 'yes', by: 'ana' })).toMatchObject({ kind: 'answered' })
      expect(await owner().answer('a', { option: 'no', by: 'bob' })).toMatchObject({
        kind: 'alreadyAnswered',
        by: 'ana',
      })
      await until([replica], async () => expect(new Set(await phasesOf('Order'))).toEqual(new Set(['Shipped'])))
      expect([await count('Parcel', { phase: 'Packed' }), await count('Label', { phase: 'Printed' })]).toEqual([18, 18])
      expect(await showDocument(system(), { id: 'a', lifecycle: 'order' })).toMatchObject({
        children: { worst: 'succeeded' },
      })
      for (const _id of ids) await owner().setState(_id, 'Deleted')
      await until([replica], async () => {
        await backDate(database.db.collection<Document>('Order') as never, 61_000)
        expect([await count('Order'), await count('Parcel'), await count('Label')]).toEqual([0, 0, 0])
      })
      over.abort()
      expect(await moving).toBeGreaterThanOrEqual(least)
      // Again perhaps, where an answer was lost.
      const calls = [...new Set(told)]
      expect(calls.filter((one) => one.endsWith('gone'))).toHaveLength(21)
      expect(calls.filter((one) => one.endsWith('Packed'))).toHaveLength(18)
      expect(calls).toContain('order a > Shipped')
      expect(packed.toSorted()).toEqual([...new Set(packed)].toSorted())
      expect(together).toEqual([])
    },
  )

  test('children that another replica runs, in a collection that this one knows only from the registry', async () => {
    const theirs = await prepared(parcels(), labels())
    for (const name of NAMES) await shard(database.db, name, { _id: 'hashed' })
    const ours = await prepared(orders())
    await owner().insert({ _id: 'a' })
    await ours.runOnce()
    await owner().answer('a', { option: 'yes', by: 'ana' })
    await until([ours, theirs], async () => expect(new Set(await phasesOf('Order'))).toEqual(new Set(['Shipped'])))
    together.length = 0
    await owner().setState('a', 'Deleted')
    await ours.runOnce()
    expect([await count('Parcel', { state: 'Deleted' }), await count('Label')]).toEqual([6, 0])
    expect(together).toEqual([])
  })

  test('operations on many documents, and what undoes them', async () => {
    for (const name of [...NAMES, ...OWN]) await shard(database.db, name, { _id: 'hashed' })
    const replica = await prepared(orders())
    const ids = Array.from({ length: 12 }, (_, n) => `o${n}`)
    for (const _id of ids) await owner().insert({ _id })
    await until([replica], async () =>
      expect(await count('Order', { 'progress.question.id': { $exists: true } })).toBe(12),
    )
    const run = async (action: string, options = {}) => {
      const selection = { lifecycle: 'order', all: true }
      const { _id } = await beginOperation(system(), { action, selection, options, by: 'ana', rate: 100_000 } as never)
      return finish(_id)
    }
    const finish = async (id: string) => {
      const worker = await prepared(operationLifecycle(system()))
      await worker.runOnce()
      return operationNamed(system(), id)
    }
    expect(await run('wake')).toMatchObject({ condition: 'Done', counts: { seen: 12, done: 12 } })
    const redone = await run('redo', { phase: 'Shipping', set: { edition: 7 } })
    expect(redone).toMatchObject({ condition: 'Done', counts: { done: 12 } })
    expect(await count('Order', { phase: 'Shipping', edition: 7 })).toBe(12)
    const undone = await undoOperation(system(), redone._id, { by: 'ana' } as never)
    expect(await finish(undone._id)).toMatchObject({ condition: 'Done', counts: { done: 12 } })
    expect(await count('Order', { phase: 'Asking', edition: { $exists: false } })).toBe(12)
    const audit = { by: 'ana', reason: 'a test' }
    for (const _id of ids) await owner().wake(_id, { audit })
    replica.wakeBetweenTicks()
    await replica.tick()
    await eventually(async () => expect(await Promise.all(OWN.map((name) => count(name)))).not.toContain(0))
    expect(await run('set-state', { state: 'Deleted' })).toMatchObject({ counts: { done: 12 } })
    expect(await run('remove')).toMatchObject({ counts: { done: 12 } })
    await until([replica], async () => expect(await count('Order')).toBe(0))
    expect(together).toEqual([])
  })

  test('what a person says of callbacks that fail, from a process without a replica', async () => {
    const failing = order.handle(
      {
        Asking: async (_doc, step) => step.moveTo('Shipping'),
        Shipping: async (_doc, step) => step.moveTo('Shipped'),
        Deleting: async (_doc, step) => step.moveTo('Gone'),
      },
      {
        onMoved: () => {
          throw new Error('away')
        },
        onRemoved,
      },
    )
    const replica = await prepared(failing)
    for (const name of ['Order']) await shard(database.db, name, { _id: 'hashed' })
    await owner().insert({ _id: 'a' })
    await replica.runOnce()
    await replica.stop()
    together.length = 0
    await eventually(() => retryCallbacks(system(), { id: 'a', lifecycle: 'order' }, { skip: true }))
    expect(await db.collection('Order').findOne({ _id: 'a' as never })).toMatchObject({ phase: 'Shipped' })
    expect(together).toEqual([])
  })
})
