import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { type Collection, type Document, MongoClient, type MongoServerError } from 'mongodb'
import { protocolClient, protocolClientOptions } from '../../src/database/index.js'
import { lifecycleOf, Replica, type Step } from '../../src/index.js'
import { mongoLockProvider } from '../../src/locks/index.js'
import { Schedules } from '../../src/schedules/index.js'
import { sleep } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { claimOf } from '../support/traces/check.js'
import { ShardedCluster } from './cluster.ts'
import { describeWithMongos } from './mongos.js'

const CLOCK_AHEAD_MS = 2_000
const LOCK_TIMEOUT_MS = 10_000
const PATIENCE = { timeoutMs: 150_000, everyMs: 250 }
const DOCUMENTS = 240
const BATCH = 20
/** Every so many is deleted by its owner, and every so many waits for something that he brings. */
const DELETED = 5
const WAITING = 7
const SCHEDULES = 3
const LEAST_LOCKED = 5
const DUPLICATE_KEY = 11000
const SCHEDULED_FOR_MS = 12_000

interface Job {
  _id: string
  state?: 'Deleted'
  brought?: boolean
}
interface Run {
  readonly step: string
  readonly token: string
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
    Deleted: { final: true, keepFor: '1h' },
  },
  rules: [{ when: 'Deleted', from: ['Created'], moveTo: 'Deleting' }],
})

describeWithMongos(`an unsharded database behind two routers whose clocks differ by ${CLOCK_AHEAD_MS} ms`, () => {
  let cluster: ShardedCluster
  beforeAll(async () => {
    cluster = await ShardedCluster.start({ clocksAheadMs: [0, CLOCK_AHEAD_MS] })
  }, 240_000)
  const both = () => cluster.uris.join(',').replaceAll('mongodb://', '').replaceAll('/', '')
  const database = useDatabase(() => `mongodb://${both()}/`)
  afterAll(async () => await cluster?.close(), 60_000)

  const clients: MongoClient[] = []
  const replicas: Replica[] = []
  const runs = new Map<string, Run[]>()
  const running = new Map<string, Step<string, Job>>()
  const overlapping: string[] = []
  const scheduled = new Map<string, number>()
  beforeEach(() => {
    for (const books of [runs, running, scheduled]) books.clear()
    overlapping.length = 0
  })
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
    await Promise.all(clients.splice(0).map((client) => client.close()))
  })

  const handled = () => {
    const handle = async (doc: Job, step: Step<string, Job>) => {
      const name = step.name ?? 'first'
      if ((running.get(doc._id)?.leaseLeftMs() ?? 0) > 0) overlapping.push(`${doc._id} ${name}`)
      running.set(doc._id, step)
      const { lockedBy, phase } = doc as Job & { lockedBy: string; phase: string }
      const before = runs.get(doc._id) ?? []
      runs.set(doc._id, [...before, { step: `${phase} ${name}`, token: lockedBy, fence: step.fence }])
      await sleep(5)
      if (running.get(doc._id) === step) running.delete(doc._id)
    }
    return job.handle({
      async Creating(doc, step) {
        await handle(doc, step)
        if (step.name === undefined) return step.again({ step: 'second' })
        const waits = Number(doc._id.slice(1)) % WAITING === 0
        return waits && !doc.brought ? step.wait('what its owner brings', { for: '1s' }) : step.moveTo('Created')
      },
      async Deleting(doc, step) {
        await handle(doc, step)
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
    const tasks = {
      work: (_args: unknown, run: { id: string }) => void scheduled.set(run.id, (scheduled.get(run.id) ?? 0) + 1),
    }
    const schedules = new Schedules({ db, name, lockTimeout: `${LOCK_TIMEOUT_MS}ms`, tasks })
    const replica = new Replica({ db, renewalDb, name, lifecycles: [handled(), ...schedules.lifecycles] })
    replicas.push(replica)
    await replica.start()
  }

  /** Two who want the same lock, each by a router; resolves to how often they had it. */
  async function contendFor(lock: string, signal: AbortSignal, uris: readonly string[]): Promise<number> {
    let [inside, fence, taken] = [0, 0, 0]
    const contend = async (uri: string) => {
      const client = await new MongoClient(uri).connect()
      clients.push(client)
      const provider = mongoLockProvider(client.db(database.db.databaseName))
      while (!signal.aborted || taken < LEAST_LOCKED) {
        const held = await provider.lock({ name: lock, lockAtMostFor: '10s' }).catch(() => undefined)
        if (held) {
          inside += 1
          expect({ inside, grew: held.fence > fence }).toEqual({ inside: 1, grew: true })
          fence = held.fence
          await sleep(20)
          inside -= 1
          taken += 1
          await held.unlock().catch(() => undefined)
        }
        await sleep(20)
      }
    }
    await Promise.all(uris.map(contend))
    return taken
  }

  /** As an owner does who gets no answer: again, until it is done. */
  async function insist(call: () => Promise<unknown>): Promise<void> {
    await eventually(() =>
      call().catch((error: MongoServerError) => error.code === DUPLICATE_KEY || Promise.reject(error)),
    )
  }

  async function load(onHalf: () => Promise<void>): Promise<void> {
    const owner = handled().attach(database.db)
    for (let at = 0; at < DOCUMENTS; at += BATCH) {
      if (at === DOCUMENTS / 2) await onHalf()
      const ids = Array.from({ length: BATCH }, (_, i) => `d${at + i}`)
      await Promise.all(ids.map((_id) => insist(() => owner.insert({ _id }))))
      for (const id of ids) if (Number(id.slice(1)) % DELETED === 0) await insist(() => owner.setState(id, 'Deleted'))
    }
    for (let n = 0; n < DOCUMENTS; n += WAITING) {
      await insist(() => jobs().updateOne({ _id: `d${n}` }, { $set: { brought: true } }))
      await insist(() => owner.wake(`d${n}`))
    }
  }

  const jobs = (): Collection<Document & { _id: string }> => database.db.collection('Job')
  const endOf = (id: string) => (Number(id.slice(1)) % DELETED === 0 ? 'Deleted' : 'Created')

  /** As the documents' histories and the handlers' own books have it. */
  async function account(): Promise<object> {
    const documents = await jobs().find().toArray()
    const lost: string[] = []
    const duplicates: string[] = []
    for (const { _id, phase, progress } of documents) {
      if (phase !== endOf(_id)) lost.push(`${_id} is ${phase}`)
      const steps = ['Creating first', 'Creating second', ...(endOf(_id) === 'Deleted' ? ['Deleting first'] : [])]
      for (const step of steps) {
        const recorded = (progress.history as Document[]).filter(
          ({ from, step: name, outcome }) => `${from} ${name ?? 'first'}` === step && /^(again|moveTo)$/.test(outcome),
        )
        const all = (runs.get(_id) ?? []).filter((run) => run.step === step)
        const run = all.find(({ token }) => recorded[0] && claimOf(token) === claimOf(recorded[0]['by']))
        if (!run) lost.push(`${_id} ${step}`)
        else if (recorded.length > 1 || recorded[0]!['count'] > 1 || all.some(({ fence }) => fence > run.fence))
          duplicates.push(`${_id} ${step}`)
      }
    }
    return { done: documents.length, lost, duplicates, overlapping }
  }

  describe.each<[string, uris: () => readonly string[], onHalf: () => Promise<void>]>([
    ['one replica at each', () => cluster.uris, async () => undefined],
    // The last: its router doesn't come back.
    [
      'replicas that use both; one router is killed',
      () => [both(), both()].map((hosts) => `mongodb://${hosts}/`),
      () => cluster.killRouter(0),
    ],
  ])('%s', (_, uris, onHalf) => {
    test('steps, waits, rules, owners, schedules, named locks: nothing is lost, doubled or overlapping', async () => {
      await Promise.all(uris().map((uri, n) => startReplica(uri, `replica-${n}`)))
      const schedules = new Schedules({ db: database.db })
      const [server] = await database.db
        .collection('phaselock.lifecycles')
        .aggregate([{ $project: { now: '$$NOW' } }])
        .toArray()
      const endAt = new Date(server!['now'].getTime() + SCHEDULED_FOR_MS)
      for (let n = 0; n < SCHEDULES; n += 1) {
        await schedules.upsert(`s${n}`, {
          task: 'work',
          cron: '* * * * * *',
          coalesce: false,
          misfireGraceTime: '120s',
          endAt,
        })
      }
      const over = new AbortController()
      const locking = contendFor('one', over.signal, uris())
      try {
        await load(onHalf)
        await eventually(async () => {
          const undone = await jobs().find().toArray()
          expect(
            undone.filter(({ _id, phase }) => phase !== endOf(_id)).map(({ _id, phase }) => ({ _id, phase })),
          ).toEqual([])
        }, PATIENCE)
        await eventually(async () => {
          expect(await schedules.list({ phase: 'Active' })).toEqual([])
          expect(await database.db.collection('runs').countDocuments({ phase: { $in: ['Queued', 'Running'] } })).toBe(0)
        }, PATIENCE)
      } finally {
        over.abort()
      }
      expect(await locking).toBeGreaterThanOrEqual(LEAST_LOCKED)
      expect(await account()).toEqual({ done: DOCUMENTS, lost: [], duplicates: [], overlapping: [] })
      for (const { _id } of await schedules.list()) {
        const made = await schedules.runs(_id, { limit: 1_000 })
        const seconds = made.map(({ scheduledFor }) => scheduledFor.getTime() / 1_000).reverse()
        expect(seconds).toEqual(seconds.map((_second, i) => seconds[0]! + i)) // none is missing, none is there twice
        expect(seconds.at(-1)).toBe(Math.floor(endAt.getTime() / 1_000))
        for (const run of made) {
          const times = scheduled.get(run._id) ?? 0
          // One that isn't completed was never begun with, and says why (the one before it still ran).
          if (run.phase !== 'Completed') expect(run).toMatchObject({ phase: 'Skipped', reason: expect.any(String) })
          const begun = run.phase === 'Completed' ? 1 + (run.lost ?? 0) : 0
          expect({ run: run._id, times }).toEqual({ run: run._id, times: begun })
        }
      }
      expect(scheduled.size).toBeGreaterThan(SCHEDULES)
      expect(replicas.map((replica) => replica.status().held)).toEqual([0, 0])
      expect(cluster.movedTimes()).toBeGreaterThan(DOCUMENTS)
    }, 400_000)
  })
})
