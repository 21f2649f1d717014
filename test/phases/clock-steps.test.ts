import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import type { Db, Document, MongoClient } from 'mongodb'
import { lifecycleOf, OwnerClient, type ReplicaOptions } from '../../src/index.js'
import { LIFECYCLES_COLLECTION } from '../../src/lock/index.js'
import { checkDatabase } from '../../src/operations/index.js'
import { clientAt } from '../lock/fixture.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { recordingLogger, replicaOf, ShiftedClock, things } from '../support/thing.js'

const MINUTE = 60_000
const JUMP = 10 * MINUTE

interface Doc {
  _id: string
  n?: number
}

const lifecycle = lifecycleOf<Doc>().define({
  name: 'thing',
  collection: 'Thing',
  phases: {
    Starting: { next: ['Started', 'Stopping'], deadline: { after: '5m', moveTo: 'Stopping' } },
    Started: { rest: true, deadline: { after: '5m', moveTo: 'Stopping' } },
    Stopping: { next: ['Stopped'] },
    Stopped: { final: true, keepFor: '5m' },
  },
})

const handlers = lifecycle.handle({
  Starting: async (doc, step) => (doc.n ? step.moveTo('Started') : step.wait('not yet', { for: '1s' })),
  Stopping: async (_doc, step) => step.wait('winding down', { for: '1h' }),
})

/**
 * The server's clock steps under replicas: the proxy stamps all that they send. Time that passes for everybody is the same step, and
 * as much on the replicas' own clocks.
 */
describe("a step of the server's clock", () => {
  const database = useDatabase()
  let proxy: TcpProxy
  let client: MongoClient
  let db: Db
  let clock: ShiftedClock

  beforeEach(async () => {
    proxy = await TcpProxy.start(database.uri)
    client = await clientAt(proxy.uri)
    db = client.db(database.db.databaseName)
    clock = new ShiftedClock()
  })
  afterEach(async () => {
    await client.close()
    await proxy.stop()
  })

  const replica = (more: Partial<ReplicaOptions> = {}) => replicaOf(db, handlers, { clock, ...more })
  const read = (id: string) => things(database.db).findOne({ _id: id }) as Promise<Record<string, any> | null>
  const phases = async () =>
    Object.fromEntries((await things(database.db).find().toArray()).map((doc) => [doc._id, doc['phase']]))
  const timePasses = (ms: number) => {
    proxy.stepClock(ms)
    clock.advance(ms)
  }
  /** By the server's clock as it is now. */
  const put = async (...documents: Document[]) => {
    for (const { _id, ...fields } of documents)
      await things(db).updateOne({ _id }, [{ $replaceWith: { $mergeObjects: [{ _id: '$_id' }, fields] } }], {
        upsert: true,
      })
  }
  const ago = (ms: number) => ({ $subtract: ['$$NOW', ms] })
  const held = (_id: string, ms = 0) => ({
    ...{ _id, phase: 'Starting', lockedAt: ago(ms), lockedBy: 'gone~000000#1.1', fence: 1 },
    progress: { since: '$$NOW', claims: 1, attempts: 0 },
  })
  /** Nothing of these is due for minutes. */
  const resting = () => [
    { _id: 'deadline', phase: 'Started', lockedAt: ago(-4 * MINUTE), progress: { since: ago(0) } },
    {
      _id: 'waits',
      phase: 'Starting',
      lockedAt: ago(-4 * MINUTE),
      progress: { since: ago(0), resumeAt: ago(-4 * MINUTE - 30_000) },
    },
    { _id: 'removed', phase: 'Stopped', lockedAt: ago(-4 * MINUTE), progress: { since: ago(0) } },
    { _id: 'by hand', phase: 'Stopped', progress: { since: ago(MINUTE) } },
    held('leased'),
  ]
  const UNTOUCHED = {
    deadline: 'Started',
    waits: 'Starting',
    removed: 'Stopped',
    'by hand': 'Stopped',
    leased: 'Starting',
  }

  describe('forward', () => {
    test('ends no question, for its handler or for an answer, before it has lasted', async () => {
      const timeouts: (boolean | undefined)[] = []
      const asks = lifecycle.handle({
        Starting: async (_doc, step) => {
          timeouts.push(step.answer?.timedOut)
          return step.answer ? step.moveTo('Started') : step.ask({ question: 'Go on?', timeout: '2m' })
        },
        Stopping: async (_doc, step) => step.wait('winding down', { for: '1h' }),
      })
      const one = replicaOf(db, asks, { clock, logger: recordingLogger() })
      await one.runOnce()
      await put({ _id: 'a', phase: 'Starting' }, { _id: 'b', phase: 'Starting' }, { _id: 'c', phase: 'Starting' })
      await one.runOnce()
      proxy.stepClock(3 * MINUTE)
      await one.runOnce()
      expect(timeouts).toEqual([undefined, undefined, undefined])
      const owner = new OwnerClient(db, lifecycle.model, { doorbell: 'off' })
      expect(await owner.answer('a', { option: 'yes', by: 'ana' })).toMatchObject({ kind: 'answered' })
      // Woken, it asks on.
      await owner.wake('b')
      await one.runOnce()
      expect(timeouts.slice(3).sort()).toEqual([false, undefined])
      // Confirmed.
      timePasses(70_000)
      expect(await owner.answer('c', { option: 'yes', by: 'ana' })).toMatchObject({ kind: 'timedOut' })
      await one.runOnce()
      await one.runOnce()
      expect(timeouts.slice(5)).toEqual([true, true])
    })

    test('fires no deadline, removes nothing and ends no lease before it has lasted; the rest goes on', async () => {
      const logger = recordingLogger()
      const steps: number[] = []
      const one = replica({ logger, observer: { clockStepped: ({ ms }) => void steps.push(ms) } })
      await one.runOnce()
      await put(...resting())
      await one.runOnce()
      proxy.stepClock(JUMP)
      await put({ _id: 'new', phase: 'Starting', n: 1 }, { _id: 'chain', phase: 'Starting' })
      await one.runOnce()
      expect(await phases()).toEqual({ ...UNTOUCHED, new: 'Started', chain: 'Starting' })
      expect(await read('leased')).toMatchObject({ lockedBy: 'gone~000000#1.1' })
      expect(steps).toHaveLength(1)
      expect(Math.abs(steps[0]! - JUMP)).toBeLessThan(2_000)
      expect(logger.lines.filter(({ level }) => level === 'error').map(({ message }) => message)).toEqual([
        expect.stringMatching(
          /^the server's clock stepped forward by (10 min|9 min 59 s).* wait until it has lasted for 1 min$/,
        ),
      ])

      // A pause that began after the step ends when it should, and a lease that began after it.
      await put(held('crashed', -1))
      const { waits: _, ...stillHeld } = UNTOUCHED
      timePasses(32_000)
      await one.runOnce()
      expect(await phases()).toMatchObject(stillHeld)
      expect((await read('chain'))!['progress'].history.at(-1).count).toBe(2)
      expect((await read('crashed'))!['lockedBy']).toBeUndefined()

      // Confirmed.
      timePasses(30_000)
      await one.runOnce()
      const { removed, deadline, leased } = await phases()
      expect({ removed, deadline, leased }).toEqual({ removed: undefined, deadline: 'Stopping', leased: 'Stopping' })
    })

    test('a running step is not stopped at a deadline that only the step has brought, and sleeps on until that counts', async () => {
      const aborted: boolean[] = []
      const stepping = lifecycle.handle({
        async Starting(_doc, step) {
          proxy.stepClock(JUMP)
          await one.tick()
          // Longer than the guard takes to look.
          await new Promise((resolve) => setTimeout(resolve, 1_200))
          aborted.push(step.signal.aborted)
          return step.wait('more', { for: '2h' })
        },
        Stopping: async (_doc, step) => step.wait('winding down', { for: '1h' }),
      })
      const one = replicaOf(db, stepping, { clock })
      await one.prepare()
      await put({ _id: 'a', phase: 'Starting' })
      await one.tick()
      await one.idle()
      expect(aborted).toEqual([false])
      expect(await read('a')).toMatchObject({ phase: 'Starting', progress: { history: [{ outcome: 'wait' }] } })
      timePasses(62_000)
      await one.runOnce()
      expect((await read('a'))!['phase']).toBe('Stopping')
    })

    test('that comes again and again holds up no deadline, removal or lease for ever', async () => {
      const one = replica()
      await one.runOnce()
      await put(...resting())
      for (let i = 0; i < 10; i++) {
        timePasses(50_000)
        proxy.stepClock(4_000)
        await one.runOnce()
      }
      const { removed, deadline, leased } = await phases()
      expect({ removed, deadline, leased }).toEqual({ removed: undefined, deadline: 'Stopping', leased: 'Stopping' })
    })

    test('taken back before it counts, it has changed nothing', async () => {
      const one = replica()
      await one.runOnce()
      await put(...resting())
      proxy.stepClock(JUMP)
      await one.runOnce()
      proxy.stepClock(-JUMP)
      timePasses(61_000)
      await one.runOnce()
      expect(await phases()).toMatchObject({
        deadline: 'Started',
        waits: 'Starting',
        removed: 'Stopped',
        'by hand': 'Stopped',
      })
      timePasses(5 * MINUTE)
      await one.runOnce()
      expect(await phases()).toMatchObject({ deadline: 'Stopping' })
    })

    test('a replica that starts after it is told by one that saw it; one that saw none goes by what it has seen', async () => {
      const [saw, watching] = [replica(), replica()]
      await saw.runOnce()
      await put(...resting())
      proxy.stepClock(JUMP)
      await saw.runOnce()
      await replica().runOnce()
      expect(await phases()).toEqual(UNTOUCHED)

      // What looks like a step to one whose machine was suspended is none to the others.
      timePasses(2 * MINUTE)
      await database.db.collection(LIFECYCLES_COLLECTION).updateMany({}, { $unset: { clockStep: 1 } })
      await watching.runOnce()
      timePasses(10_000)
      await watching.runOnce()
      const suspended = replica({ clock: { now: clock.now, monotonicMs: () => frozen ?? clock.monotonicMs() } })
      let frozen: number | undefined
      await suspended.runOnce()
      await put({ _id: 'sleeps', phase: 'Starting', n: 1, lockedAt: '$$NOW' })
      frozen = clock.monotonicMs()
      timePasses(MINUTE)
      await suspended.runOnce()
      expect((await read('sleeps'))!['phase']).toBe('Starting')
      await watching.runOnce()
      expect((await read('sleeps'))!['phase']).toBe('Started')
    })

    test('clockHold 0s: it counts at once', async () => {
      const one = replica({ clockHold: '0s' })
      await one.runOnce()
      await put(...resting())
      proxy.stepClock(JUMP)
      await one.runOnce()
      expect(await phases()).toMatchObject({ deadline: 'Stopping', leased: 'Stopping' })
    })
  })

  describe('back', () => {
    const dead = ['dead 1', 'dead 2']
    const notTaken = { lockedBy: 'gone~000000#1.1', phase: 'Starting' }

    test('what a replica held that is gone is free after lockTimeout, not after the step; sleeps stay', async () => {
      const logger = recordingLogger()
      const steps: number[] = []
      const one = replica({ logger, observer: { clockStepped: ({ ms }) => void steps.push(ms) } })
      await one.runOnce()
      await put(...dead.map((id) => held(id)), {
        _id: 'asleep',
        phase: 'Started',
        lockedAt: ago(-MINUTE),
        progress: { since: '$$NOW' },
      })
      const asleep = await read('asleep')
      proxy.stepClock(-JUMP)
      await one.runOnce()
      expect(steps).toHaveLength(1)
      expect(Math.abs(steps[0]! + JUMP)).toBeLessThan(2_000)
      expect(logger.lines.map(({ message }) => message)).toEqual(
        expect.arrayContaining([
          expect.stringMatching(/^the server's clock stepped back by (10 min|9 min 59 s|10 min 0 s)/),
          expect.stringMatching(/^thing: 2 leases taken before/),
        ]),
      )
      for (const id of dead) expect(await read(id)).toMatchObject(notTaken)
      timePasses(31_000)
      await one.runOnce()
      for (const id of dead) expect((await read(id))!['lockedBy']).toBeUndefined()
      expect(await read('asleep')).toEqual(asleep)
    })

    test('a holder that lives keeps its documents', async () => {
      let stepped = false
      const other = replica()
      const working = lifecycle.handle({
        async Starting(_doc, step) {
          if (stepped) return step.wait('more', { for: '1h' })
          stepped = true
          proxy.stepClock(-JUMP)
          await one.tick()
          await other.runOnce()
          timePasses(29_000)
          await other.runOnce()
          return step.moveTo('Started')
        },
        Stopping: async (_doc, step) => step.wait('winding down', { for: '1h' }),
      })
      const one = replicaOf(db, working, { clock })
      await Promise.all([one.prepare(), other.prepare()])
      await put({ _id: 'a', phase: 'Starting' })
      await one.tick()
      await one.idle()
      expect((await read('a'))!['phase']).toBe('Started')
      expect((await read('a'))!['progress'].claims).toBe(0)
    })

    test('what fails of it keeps nobody from claiming, and is done later, for all steps until then', async () => {
      const one = replica()
      await one.runOnce()
      await put(held('dead'), { _id: 'new', phase: 'Starting', n: 1 })
      let failed = 0
      proxy.answerAll(({ name, body }) => {
        if (name !== 'find' || !JSON.stringify(body).includes('"lockedBy":{"$type":"string"}')) return undefined
        failed += 1
        return { ok: 0, code: 8, codeName: 'UnknownError', errmsg: 'odd' }
      })
      proxy.stepClock(-JUMP)
      await one.tick()
      await one.idle()
      expect(failed).toBe(1)
      expect((await read('new'))!['phase']).toBe('Started')
      proxy.stepClock(-MINUTE)
      await one.tick()
      proxy.pass()
      await one.tick()
      timePasses(31_000)
      await one.runOnce()
      expect((await read('dead'))!['lockedBy']).toBeUndefined()
    })

    test('a replica that starts after it sees it by what was stored before', async () => {
      await replica().runOnce()
      const lifecycles = db.collection(LIFECYCLES_COLLECTION)
      await lifecycles.updateMany({}, [{ $set: { replicas: [{ name: 'gone~000000', seenAt: '$$NOW' }] } }])
      await put(held('dead'))
      proxy.stepClock(-JUMP)
      const steps: number[] = []
      const after = replica({ observer: { clockStepped: ({ ms }) => void steps.push(ms) } })
      await after.runOnce()
      expect(steps).toHaveLength(1)
      timePasses(31_000)
      await after.runOnce()
      expect((await read('dead'))!['lockedBy']).toBeUndefined()
      expect(steps).toHaveLength(1)
    })

    test('without a replica: check says it, --repair lets such leases begin anew, unpark --force ends one', async () => {
      await replica().runOnce()
      await put(held('dead 1'), held('dead 2'), held('fresh'))
      proxy.stepClock(-JUMP)
      await put(held('fresh'))
      const check = (repair = false) => checkDatabase({ db, models: [lifecycle.model], repair })
      const found = async (repair = false) => (await check(repair)).find((one) => one.check === 'leases')!.findings
      expect(await found()).toMatchObject([
        { about: 'Thing', problem: expect.stringMatching(/^2 documents .*\(dead 1, dead 2\)/), repair: 'possible' },
      ])
      const owner = new OwnerClient<Doc>(db, lifecycle.model, { doorbell: 'off' })
      expect(await owner.wake('dead 1')).toBe('held')
      expect(await owner.unpark('dead 1')).toBe('held')
      expect(await owner.unpark('fresh', { force: true })).toBe('held')
      expect(await owner.unpark('dead 1', { force: true, by: 'ann' })).toBe('done')
      const freed = (await read('dead 1'))!
      expect(freed).toMatchObject({ lockedAt: new Date(0), progress: { claims: 0 } })
      expect(freed['lockedBy']).toBeUndefined()
      expect(freed['progress'].history.at(-1)).toMatchObject({
        by: 'ann',
        reason: expect.stringMatching(/gone~000000#1.1/),
      })

      expect(await found(true)).toMatchObject([{ repair: 'done' }])
      expect(await found()).toEqual([])
      expect(await read('dead 2')).toMatchObject(notTaken)
      timePasses(31_000)
      await replica().runOnce()
      expect((await read('dead 2'))!['lockedBy']).toBeUndefined()
    })
  })
})
