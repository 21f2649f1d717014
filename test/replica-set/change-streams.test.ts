import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { type Db, type Document, MongoClient } from 'mongodb'
import { Doorbell } from '../../src/doorbell/index.js'
import { lifecycleOf, OwnerClient, type Replica, type ReplicaOptions } from '../../src/index.js'
import { sleep, systemClock } from '../../src/time/index.js'
import { eventually } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { replicaOf } from '../support/thing.js'
import { describeWithMongod } from './mongod.js'
import { useReplicaSet } from './support.js'

const job = lifecycleOf<{ _id: string }>().define({
  name: 'job',
  collection: 'Job',
  phases: { Working: { next: ['Done'] }, Done: { rest: true } },
})
const KINDS = ['changeStream', 'capped'] as const
const MEASURED = 60
const LISTENERS = 10
const IDLE_MS = 10_000

describeWithMongod('the doorbell on a replica set of three', () => {
  const begun = new Map<string, number>()
  const closing: (() => Promise<unknown>)[] = []
  // Before the database goes.
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close()
  })
  const replicaSet = useReplicaSet({ args: ['--oplogSize', '1'] })
  const { database } = replicaSet
  const jobs = job.handle({
    async Working(doc, step) {
      begun.set(doc._id, systemClock.monotonicMs())
      return step.moveTo('Done')
    },
  })
  let owner: OwnerClient<{ _id: string }>
  beforeEach(() => {
    begun.clear()
    owner = new OwnerClient(database.db, job.model)
  })

  /** A replica that hears, and that nobody ticks. */
  async function listening(options: Partial<ReplicaOptions>, kind: string): Promise<Replica> {
    const replica = replicaOf(database.db, jobs, options)
    closing.push(() => replica.stop())
    await replica.prepare()
    replica.wakeBetweenTicks()
    await eventually(() => expect(replica.status().doorbell).toBe(kind))
    await picksUp(`first of ${replica.identity}`)
    return replica
  }
  async function picksUp(_id: string): Promise<number> {
    await owner.insert({ _id })
    const insertedMs = systemClock.monotonicMs()
    await eventually(() => expect([...begun.keys()]).toContain(_id), { everyMs: 2 })
    return begun.get(_id)! - insertedMs
  }

  test.each(KINDS)('%s: each of 60 rings is heard by a replica whose tick stands still', async (kind) => {
    await listening({ doorbell: kind }, kind)
    const took: number[] = []
    for (let n = 0; n < MEASURED; n += 1) {
      took.push(await picksUp(`d${n}`))
      await sleep(62) // a ringer's pace
    }
    took.sort((a, b) => a - b)
    const [p50, p95] = [0.5, 0.95].map((part) => took[Math.floor(part * took.length)]!.toFixed(1))
    process.stderr.write(`${kind}: from the answer to an insert to its handler: p50 ${p50} ms, p95 ${p95} ms\n`)
  })

  test.each(KINDS)(
    '%s: goes on after an election, and what is rung for meanwhile waits for a tick at most',
    async (kind) => {
      const replica = await listening({ doorbell: kind }, kind)
      await replicaSet.set.stepDown()
      const meanwhile = Array.from({ length: 5 }, (_, n) => `meanwhile ${n}`)
      for (const _id of meanwhile) await owner.insert({ _id })
      await eventually(async () => expect(await replicaSet.set.isWhole()).toBe(true))
      await replica.tick()
      await eventually(() => expect([...begun.keys()]).toEqual(expect.arrayContaining(meanwhile)))
      await eventually(() => expect(replica.status().doorbell).toBe(kind))
      await picksUp('after')
    },
  )

  test('a listener whose place in the oplog is gone hears again, and has looked at everything', async () => {
    const proxy = await TcpProxy.start(await primaryUri(database.db))
    closing.push(() => proxy.stop())
    const client = new MongoClient(directTo(proxy), { serverSelectionTimeoutMS: 2_000 })
    closing.push(() => client.close())
    await client.connect()
    const replica = await listening(
      { doorbell: 'changeStream', doorbellDb: client.db(database.db.databaseName) },
      'changeStream',
    )
    const first = await oldestInOplog(database.client)
    proxy.refuse()
    await owner.insert({ _id: 'unheard' })
    await owner.flush()
    await eventually(
      async () => {
        const some = Array.from({ length: 50 }, () => ({ filler: 'x'.repeat(20_000) }))
        await database.db.collection('Filler').insertMany(some)
        await database.db.collection('Filler').deleteMany()
        expect(await oldestInOplog(database.client)).toBeGreaterThan(first)
      },
      { timeoutMs: 100_000, everyMs: 200 },
    )
    proxy.pass()
    await eventually(() => expect(begun.has('unheard')).toBe(true))
    // It tries again after up to a minute, as it has failed for so long.
    await eventually(() => expect(KINDS).toContain(replica.status().doorbell), { timeoutMs: 90_000 })
    await picksUp('after')
  })

  test('a listener whose change stream the server ends for good listens with a tailable cursor', async () => {
    const proxy = await TcpProxy.start(await primaryUri(database.db))
    closing.push(() => proxy.stop())
    const client = await new MongoClient(directTo(proxy)).connect()
    closing.push(() => client.close())
    const replica = await listening(
      { doorbell: 'changeStream', doorbellDb: client.db(database.db.databaseName) },
      'changeStream',
    )
    const gone = { ok: 0, code: 286, codeName: 'ChangeStreamHistoryLost', errmsg: 'resume point is gone' }
    const answered = proxy.answer(({ name }) => name === 'getMore', gone)
    await picksUp('before the next getMore')
    await answered
    await eventually(() => expect(replica.status().doorbell).toBe('capped'))
    await picksUp('after')
  })

  test.each(KINDS)('%s: ten idle listeners wait for half a minute with each command', async (mode) => {
    let sent = 0
    for (let n = 0; n < LISTENERS; n += 1) {
      const client = new MongoClient(database.uri, { monitorCommands: true })
      client.on('commandStarted', () => {
        sent += 1
      })
      closing.push(() => client.close())
      const db = client.db(database.db.databaseName)
      const heard: unknown[] = []
      const doorbell = new Doorbell({ db, mode, create: true, self: `listener ${n}` })
      const listener = doorbell.listen(['job'], async (ring) => heard.push(ring))
      closing.push(() => listener.stop())
      await eventually(() => expect(heard).toHaveLength(1))
    }
    // Their first waits begin.
    await sleep(1_000)
    const [before, beforeMs, sentBefore] = [await cpuMs(database.client), systemClock.monotonicMs(), sent]
    await sleep(IDLE_MS)
    const part = (await cpuMs(database.client)) - before
    const percent = ((100 * part) / (systemClock.monotonicMs() - beforeMs)).toFixed(1)
    process.stderr.write(`${mode}: beside ${LISTENERS} idle listeners the primary took ${percent} % of a core\n`)
    expect(sent - sentBefore).toBeLessThanOrEqual(LISTENERS)
  })
})

async function primaryUri(db: Db): Promise<string> {
  const { primary } = await db.admin().command({ hello: 1 })
  return `mongodb://${primary}/${db.databaseName}`
}

async function oldestInOplog(client: MongoClient): Promise<number> {
  const [oldest] = await client.db('local').collection('oplog.rs').find().sort({ $natural: 1 }).limit(1).toArray()
  return (oldest as Document)['ts'].getHighBits() * 1_000_000 + (oldest as Document)['ts'].getLowBits()
}

async function cpuMs(client: MongoClient): Promise<number> {
  const { extra_info } = await client.db('admin').command({ serverStatus: 1 })
  return (extra_info.user_time_us + extra_info.system_time_us) / 1_000
}

const directTo = ({ uri }: TcpProxy) => `${uri.split('?')[0]}?directConnection=true`
