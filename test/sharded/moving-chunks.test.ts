import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals'
import { type Collection, type Document, MongoClient } from 'mongodb'
import { protocolClient, protocolClientOptions } from '../../src/database/index.js'
import { lifecycleOf, Replica, type Step } from '../../src/index.js'
import { sleep, systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { recordingLogger } from '../support/thing.js'
import { chunksOf, move, shard } from './chunks.ts'
import { ShardedCluster } from './cluster.ts'
import { describeWithMongos } from './mongos.js'

const LOCK_TIMEOUT_MS = 10_000
const PATIENCE = { timeoutMs: 120_000, everyMs: 250 }
const BATCH = 20
const LEAST_DOCUMENTS = 400
const LEAST_MIGRATIONS = 24
/** The named steps of each document in Creating. */
const STEPS = 10
/** Every so many is deleted by its owner once it is there, and every so many waits for something that he brings. */
const DELETED = 5
const WAITING = 7

interface Job {
  _id: string
  n: number
  state?: 'Deleted'
  brought?: boolean
  /** The fences of its recorded steps. */
  recorded?: Record<string, number>
}
interface Run {
  readonly step: number
  readonly fence: number
}

const job = lifecycleOf<Job>().define({
  name: 'job',
  collection: 'Job',
  lockTimeout: `${LOCK_TIMEOUT_MS}ms`,
  phases: {
    Creating: { next: ['Created'] },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true },
  },
  rules: [{ when: 'Deleted', from: ['Created'], moveTo: 'Deleting' }],
})

const isDeleted = (n: number) => n % DELETED === 0
const isWaiting = (n: number) => n % WAITING === 0

describeWithMongos('a collection sharded by { _id: "hashed" } whose chunks move under load', () => {
  let cluster: ShardedCluster
  beforeAll(async () => {
    // Else a chunk can't come back for a quarter of an hour.
    cluster = await ShardedCluster.start({ shardParameters: { orphanCleanupDelaySecs: 1 } })
  }, 240_000)
  const database = useDatabase(() => cluster.uris[0])
  afterAll(async () => await cluster?.close(), 60_000)

  const logger = recordingLogger()
  const clients: MongoClient[] = []
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
    await Promise.all(clients.splice(0).map((client) => client.close()))
  })

  /** Of all that handlers did, in the order in which they began: outside of the database. */
  const runs = new Map<string, Run[]>()
  const running = new Map<string, Step<string, Job>>()
  const overlapping: string[] = []

  const handled = () => {
    const begun = async (doc: Job, step: Step<string, Job>, number: number): Promise<Partial<Job>> => {
      if ((running.get(doc._id)?.leaseLeftMs() ?? 0) > 0) overlapping.push(`${doc._id} ${number}`)
      running.set(doc._id, step)
      runs.set(doc._id, [...(runs.get(doc._id) ?? []), { step: number, fence: step.fence }])
      await sleep(2)
      if (running.get(doc._id) === step) running.delete(doc._id)
      return { recorded: { ...doc.recorded, [number]: step.fence } }
    }
    return job.handle({
      async Creating(doc, step) {
        const number = Number(step.name ?? 1)
        const set = await begun(doc, step, number)
        if (number < STEPS) return step.again({ step: `${number + 1}`, set })
        return isWaiting(doc.n) && !doc.brought
          ? step.wait('what its owner brings', { for: '1h' })
          : step.moveTo('Created', { set })
      },
      async Deleting(doc, step) {
        await begun(doc, step, STEPS + 1)
        return step.moveTo('Deleted')
      },
    })
  }

  async function startReplica(uri: string, name: string): Promise<void> {
    const open = async (more = {}) => {
      const client = protocolClient(uri, { ...protocolClientOptions(LOCK_TIMEOUT_MS), ...more })
      clients.push(client)
      return (await client.connect()).db(database.db.databaseName)
    }
    const [db, renewalDb] = [await open(), await open({ maxPoolSize: 1 })]
    const replica = new Replica({ db, renewalDb, name, logger, lifecycles: [handled()] })
    replicas.push(replica)
    await replica.start()
  }

  const jobs = (): Collection<Document & Job> => database.db.collection('Job')

  /** One chunk after the other, back and forth; resolves to how many have moved, and what was refused. */
  async function moveChunks(signal: AbortSignal): Promise<{ moved: number; refused: string[] }> {
    const refused: string[] = []
    let moved = 0
    while (!signal.aborted || moved < LEAST_MIGRATIONS) {
      const chunks = await chunksOf(database.db, 'Job')
      const chunk = chunks[(moved + refused.length) % chunks.length]!
      try {
        await move(database.db, 'Job', chunk, { waitForDelete: moved % 2 === 0 })
        moved += 1
      } catch (error) {
        refused.push(String(error))
        await sleep(100)
      }
    }
    return { moved, refused }
  }

  test('each step is recorded once: nothing is lost, doubled or overlapping', async () => {
    await shard(database.db, 'Job', { _id: 'hashed' })
    await Promise.all(cluster.uris.map((uri, n) => startReplica(uri, `replica-${n}`)))
    const owner = handled().attach(database.db)
    const over = new AbortController()
    const startedMs = systemClock.monotonicMs()
    const moving = moveChunks(over.signal)
    let n = 0
    try {
      for (; n < LEAST_DOCUMENTS; n += BATCH) {
        const some = Array.from({ length: BATCH }, (_, i) => n + i)
        await owner.insertMany(some.map((one) => ({ _id: `d${one}`, n: one })))
        // What doesn't wait is nearly done before the next come.
        const isOpen = { phase: 'Creating', n: { $mod: [WAITING, 1] as [number, number] } }
        await eventually(async () => expect(await jobs().countDocuments(isOpen)).toBeLessThan(BATCH), PATIENCE)
      }
      for (let one = 0; one < n; one += DELETED) await owner.setState(`d${one}`, 'Deleted')
      for (let one = 0; one < n; one += WAITING) {
        await jobs().updateOne({ _id: `d${one}` }, { $set: { brought: true } }, { writeConcern: { w: 'majority' } })
        // A step that is running may not have seen it.
        await eventually(async () => expect(await owner.wake(`d${one}`)).toBe('done'), PATIENCE)
      }
    } finally {
      over.abort()
    }
    const { moved, refused } = await moving
    const all = Array.from({ length: n }, (_, i) => i)
    await eventually(async () => {
      const undone = await jobs()
        .find({ phase: { $ne: 'Created' } })
        .project({ phase: 1 })
        .toArray()
      expect(undone).toEqual([])
      expect(await jobs().countDocuments()).toBe(all.filter((one) => !isDeleted(one)).length)
    }, PATIENCE)
    const tookMs = systemClock.monotonicMs() - startedMs

    const lost: string[] = []
    const repeated: string[] = []
    let [steps, again] = [0, 0]
    const kept = new Map((await jobs().find().toArray()).map((document) => [document._id, document]))
    for (const one of all) {
      const ran = runs.get(`d${one}`) ?? []
      const last = isDeleted(one) ? STEPS + 1 : STEPS
      for (let step = 1; step <= last; step += 1) {
        const own = ran.filter((run) => run.step === step)
        if (own.length === 0) lost.push(`d${one} ${step} never ran`)
        const fence = kept.get(`d${one}`)?.recorded?.[step]
        if (!isDeleted(one) && fence === undefined) lost.push(`d${one} ${step} isn't recorded`)
        if (own.some((run) => run.fence > (fence ?? Number.POSITIVE_INFINITY))) repeated.push(`d${one} ${step}`)
        steps += own.length
        // The last step of those that wait runs once more, when they are woken.
        again += Math.max(0, own.length - (step === STEPS && isWaiting(one) ? 2 : 1))
      }
      const after = ran.filter((run, i) => ran.slice(0, i).some((before) => before.step > run.step))
      for (const { step } of after) repeated.push(`d${one} ${step} after a later one`)
    }
    const figures = { documents: n, steps, again, moved, refused: refused.length, seconds: Math.round(tookMs / 1_000) }
    console.info(`moving chunks: ${JSON.stringify(figures)} ${[...new Set(refused)].slice(0, 3).join('; ')}`)
    expect({ lost, repeated, overlapping }).toEqual({ lost: [], repeated: [], overlapping: [] })
    expect(logger.lines.filter(({ message }) => /shard/i.test(message))).toEqual([]) // refused for how it is addressed
    expect(steps).toBeGreaterThanOrEqual(n * STEPS)
    expect(moved).toBeGreaterThanOrEqual(LEAST_MIGRATIONS)
    expect(replicas.map((replica) => replica.status().held)).toEqual([0, 0])
  }, 500_000)
})
