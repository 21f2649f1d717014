import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, expect, jest, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { type CallbackEvent, lifecycleOf, Replica, silentLogger } from '../../src/index.js'
import { backDate } from '../../src/testing/index.js'
import { sleep } from '../../src/time/index.js'
import { clientAt } from '../lock/fixture.js'
import { eventually } from '../support/database.js'
import { randomNumbers } from '../support/random.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { gate } from '../support/thing.js'
import { type Job, jobSpec, jobsWith, useJobs } from './callbacks-fixture.js'
import { crashingReplicas } from './crashing-replicas.js'

jest.setTimeout(120_000)

const DOCUMENTS = 12
const CRASHES = 12

/** A lifecycle beside that of jobs, with a callback too. */
const otherWith = (onMoved: (event: Pick<CallbackEvent<Job>, 'id' | 'seq'>) => unknown) =>
  lifecycleOf<{ _id: string }>()
    .define({
      ...{ name: 'other', collection: 'Other', phases: { Begun: { next: ['Done'] }, Done: { rest: true } } },
      ...{ callbacks: ['onMoved'], callbackTimeout: '200ms', maxAttempts: 3 },
    })
    .handle(
      { Begun: async (_doc, step) => step.moveTo('Done') },
      { onMoved: async (event) => void (await onMoved(event)) },
    )

describe('callbacks beside crashes', () => {
  const { jobs, insert, pass, prepared, database } = useJobs()
  const replicaThatCrashes = crashingReplicas(database)

  test.each([1, 2, 3, 4])('none is lost, or told before its outcome, or out of order (seed %i)', async (seed) => {
    const random = randomNumbers(seed)
    const told = new Map<string, number[]>()
    const wrong: string[] = []
    const each = async ({ id, seq, from, to, callback }: CallbackEvent<Job> & { callback?: string }) => {
      const seqs = told.get(id) ?? []
      told.set(id, [...seqs, seq])
      const last = seqs.at(-1) ?? 0
      if (seq !== last && seq !== last + 1) wrong.push(`${id}: ${seq} after ${last}`)
      const history = ((await jobs().findOne({ _id: id }))?.['progress'].history ?? []) as Record<string, unknown>[]
      const isStored = history.some((one) => one['from'] === from && one['to'] === to && one['outcome'] !== 'again')
      if (!isStored) wrong.push(`${id}: ${callback} of ${from} -> ${to} before its outcome`)
      if (random() < 0.2) throw new Error('the receiver is away')
    }
    const own = () => jobsWith(each).lifecycle
    const alive = [await replicaThatCrashes(random, own()), await replicaThatCrashes(random, own())]
    for (let i = 0; i < DOCUMENTS; i += 1) await insert(`j${i}`, { fails: i % 4 === 0 })
    let crashes = 0
    for (let turn = 0; turn < 200; turn += 1) {
      await Promise.all(
        alive.map(async ({ replica, crashed }) => {
          const turn = replica.tick().then(() => replica.idle())
          await Promise.race([turn.catch(() => undefined), crashed])
        }),
      )
      for (const [i, one] of alive.entries()) {
        if (one.isUp()) continue
        crashes += 1
        void one.replica.stop()
        alive[i] = await replicaThatCrashes(crashes < CRASHES ? random : () => 1e9, own())
      }
      await pass(15_000)
      await jobs().updateMany({ 'progress.outbox.dueAt': { $exists: true } }, [
        { $set: { 'progress.outbox.tries': { $min: ['$progress.outbox.tries', 1] } } },
      ])
      const open = await jobs().countDocuments({
        $or: [
          { 'progress.outbox.next': { $exists: true } },
          { phase: { $in: ['First', 'Second'] }, lockedAt: { $lt: new Date('9999-01-01') } },
        ],
      })
      const unseen = await jobs().countDocuments({ lockedAt: { $exists: false } })
      if (open + unseen === 0 && crashes >= CRASHES) break
      if (open + unseen === 0) await insert(`more${turn}`)
    }
    expect(wrong).toEqual([])
    expect(crashes).toBeGreaterThanOrEqual(CRASHES)
    for (const { _id, progress, phase } of await jobs().find().toArray()) {
      const seqs = new Set(told.get(_id))
      const expected = phase === 'Done' ? 2 : 1
      expect({ _id, phase, seqs: [...seqs], outbox: progress.outbox }).toEqual({
        ...{ _id, phase, outbox: { seq: expected } },
        seqs: Array.from({ length: expected }, (_, i) => i + 1),
      })
    }
  })

  test.each(['one lifecycle', 'another lifecycle too'])(
    'a callback that kills its process, again and again, costs no other document its own (%s)',
    async (which) => {
      const told = new Set<string>()
      const innocents: string[] = []
      const others = database.db.collection<{ _id: string; phase: string }>('Other')
      for (let i = 0; i < 12; i += 1) {
        if (i === 5) await insert('poison')
        innocents.push(`j${i}`)
        await insert(`j${i}`)
        if (which !== 'one lifecycle') await others.insertOne({ _id: `o${i}`, phase: 'Begun' })
      }
      const asParked = { _id: 'poison', 'progress.outbox.dueAt': new Date('9999-12-31') }
      let lives = 0
      for (; lives < 20 && (await jobs().countDocuments(asParked)) === 0; lives += 1) {
        const killed = Promise.withResolvers<void>()
        const proxy = await TcpProxy.start(database.uri)
        const client = await new MongoClient(proxy.uri, { serverSelectionTimeoutMS: 500, retryWrites: false }).connect()
        const each = async ({ id, seq }: Pick<CallbackEvent<Job>, 'id' | 'seq'>) => {
          if (id !== 'poison' || seq !== 1) return void told.add(`${id} ${seq}`)
          proxy.refuse()
          killed.resolve()
          await new Promise(() => undefined)
        }
        const replica = new Replica({
          db: client.db(database.db.databaseName),
          lifecycles: [jobsWith(each).lifecycle, otherWith(each)],
          ...{ logger: silentLogger, doorbell: 'off', grace: '0s' },
        })
        await replica.prepare()
        await Promise.race([replica.runOnce().catch(() => undefined), killed.promise])
        void replica.stop()
        await client.close(true)
        await proxy.stop()
        await pass(15_000)
        await backDate(others as never, 15_000)
      }
      expect(lives).toBe(4) // thrice it was called, and then given up
      expect(await jobs().countDocuments({ ...asParked, 'progress.outbox.tries': 3 })).toBe(1)
      expect([...told].sort()).toEqual(expect.arrayContaining(innocents.flatMap((id) => [`${id} 1`, `${id} 2`])))
      expect(await jobs().distinct('_id', { 'progress.outbox.next': { $exists: true } })).toEqual(['poison'])
      expect(await others.countDocuments({ 'progress.outbox.next': { $exists: true } })).toBe(0)
    },
  )

  const entry = { seq: 1, callback: 'onMoved', at: new Date(), from: 'First', to: 'Second', step: null }
  /** A document that somebody took to tell of it, so many times, and never let go of. */
  const orphan = (_id: string, tries: number, more: object = {}) => ({
    ...{ _id, phase: 'Done', ...more },
    progress: {
      outbox: {
        ...{ seq: 1, open: [{ ...entry, outcome: 'moveTo', reason: null, by: 'x' }], next: 'onMoved' },
        ...{ by: 'dead!1', dueAt: new Date(Date.now() - 60_000), tries },
      },
    },
  })

  test('what was held by a dead process and is called for long costs no commands meanwhile', async () => {
    const client = await clientAt(database.uri, { monitorCommands: true })
    let finds = 0
    client.on('commandStarted', ({ commandName }) => {
      if (commandName === 'find') finds += 1
    })
    const [end, all] = [gate(), gate()]
    const begun: string[] = []
    const { lifecycle } = jobsWith(async ({ id }) => {
      if (begun.push(id) === 2) all.open()
      await end.wait
    })
    const one = await prepared([lifecycle], { db: client.db(database.db.databaseName) })
    await jobs().insertMany([orphan('a', 1), orphan('b', 1)])
    await one.tick()
    await all.wait // once more they are called together
    finds = 0
    await one.tick()
    for (let i = 0; i < 30; i += 1) await database.db.command({ ping: 1 })
    expect(finds).toBeLessThan(10)
    end.open()
    await one.idle()
    await one.stop()
    await client.close()
  })

  test('a call that a crash cut short waits for no long step whose process has crashed too', async () => {
    const [end, begun] = [gate(), gate()]
    const told: string[] = []
    const spec = { ...jobSpec, callbacks: ['onMoved'], concurrency: 1 } as const
    const own = lifecycleOf<Job>()
      .define(spec)
      .handle(
        {
          First: async (_doc, step) => {
            begun.open()
            await end.wait
            return step.moveTo('Second')
          },
          Second: async (_doc, step) => step.moveTo('Done'),
        },
        { onMoved: ({ id }) => void told.push(id) },
      )
    const one = await prepared([own])
    const expired = { lockedBy: 'dead~1#1.1', lockedAt: new Date(Date.now() - 600_000), fence: 1 }
    await jobs().insertOne({ _id: 'long', phase: 'First', ...expired, progress: { claims: 1 } })
    await one.tick()
    await begun.wait
    await jobs().insertOne(orphan('called', 1))
    await eventually(async () => {
      await one.tick()
      expect(told).toEqual(['called'])
    })
    end.open()
    await one.idle()
  })

  test('on its last try a document is alone, also where it moves on meanwhile, and nothing is left untold for that', async () => {
    const events: string[] = []
    const { lifecycle } = jobsWith(async ({ id, seq }) => {
      events.push(`+${id} ${seq}`)
      await sleep(id === 'last' ? 50 : 1)
      events.push(`-${id} ${seq}`)
    })
    const told: string[] = []
    const other = otherWith(({ id }) => void told.push(id))
    const one = await prepared([lifecycle, other])
    await jobs().insertMany([orphan('last', 2, { phase: 'First' }), orphan('j', 1)])
    for (let i = 0; i < 20; i += 1) await insert(`j${i}`)
    await database.db.collection('Other').insertMany([{ phase: 'Begun' }, { phase: 'Begun' }] as never)
    await one.runOnce()
    expect(told).toHaveLength(2)
    expect(events).toHaveLength(2 * (3 + 1 + 40))
    const [begun, ended] = [events.indexOf('+last 1'), events.indexOf('-last 1')]
    expect(events.slice(begun + 1, ended).filter((event) => event.startsWith('+'))).toEqual([])
  })

  test.each(['callback', 'step'] as const)(
    'a %s that kills its process again and again uses up no last claim or try of what runs beside it',
    async (killer) => {
      const told = new Set<string>()
      const most = killer === 'callback' ? { maxClaims: 3, maxAttempts: 6 } : { maxClaims: 6, maxAttempts: 3 }
      const spec = { ...jobSpec, callbacks: ['onMoved'], callbackTimeout: '5s', ...most } as const
      const jobsBeside = lifecycleOf<Job>().define(spec)
      if (killer === 'callback') await jobs().insertOne(orphan('poison', 1))
      else await insert('poison')
      for (let i = 0; i < 4; i += 1) {
        if (killer === 'callback') await insert(`j${i}`)
        else await jobs().insertOne(orphan(`j${i}`, 1))
      }
      const lastAt = new Date('9999-12-31')
      const asParked = { 'progress.outbox.dueAt': lastAt }
      const isOver = () =>
        jobs().countDocuments({ _id: 'poison', ...(killer === 'callback' ? asParked : { lockedAt: lastAt }) })
      let lives = 0
      for (; lives < 30 && (await isOver()) === 0; lives += 1) {
        const killed = Promise.withResolvers<never>()
        const proxy = await TcpProxy.start(database.uri)
        const client = await new MongoClient(proxy.uri, { serverSelectionTimeoutMS: 500, retryWrites: false }).connect()
        const kill = async () => {
          await sleep(20)
          proxy.refuse()
          killed.reject(new Error('killed'))
          return new Promise<never>(() => undefined)
        }
        const own = jobsBeside.handle(
          {
            First: async ({ _id }, step) => {
              await (_id === 'poison' ? kill() : sleep(60))
              return step.moveTo('Second')
            },
            Second: async (_doc, step) => step.moveTo('Done'),
          },
          {
            onMoved: async ({ id, seq }) => {
              await (id === 'poison' ? kill() : sleep(60))
              told.add(`${id} ${seq}`)
            },
          },
        )
        const more = { logger: silentLogger, doorbell: 'off' as const, grace: '0s' as const }
        const replica = new Replica({ db: client.db(database.db.databaseName), lifecycles: [own], ...more })
        await replica.prepare()
        await Promise.race([replica.runOnce(), killed.promise]).catch(() => undefined)
        void replica.stop()
        await client.close(true)
        await proxy.stop()
        await pass(60_000)
      }
      expect(await isOver()).toBe(1)
      expect(await jobs().countDocuments({ _id: /^j/, $or: [asParked, { lockedAt: lastAt }] } as never)).toBe(0)
      expect(await jobs().countDocuments({ _id: /^j/, phase: 'Done' } as never)).toBe(4)
      expect(told.size).toBe(killer === 'callback' ? 8 : 4)
    },
  )

  test('kill -9 in a call: another replica makes it again, then the calls that follow, in their order', async () => {
    await jobs().insertOne({
      ...{ _id: 'j', phase: 'Done' },
      progress: {
        outbox: {
          ...{ seq: 3, next: 'onMoved', dueAt: new Date(0) },
          open: [1, 2, 3].map((seq) => ({ ...entry, seq, outcome: 'moveTo', reason: null, by: 'x' })),
        },
      },
    })
    const code = `
      import { MongoClient } from '${import.meta.resolve('mongodb')}'
      import { lifecycleOf, Replica } from '${new URL('../../dist/index.js', import.meta.url).href}'
      const phases = { First: { next: ['Done'] }, Done: { rest: true } }
      const job = lifecycleOf().define({ name: 'job', collection: 'Job', phases, callbacks: ['onMoved'] })
      const client = await new MongoClient('${database.uri}').connect()
      const onMoved = ({ seq }) => seq === 2 && process.kill(process.pid, 'SIGKILL')
      const lifecycle = job.handle({ First: async (_doc, step) => step.moveTo('Done') }, { onMoved })
      await new Replica({ db: client.db('${database.db.databaseName}'), lifecycles: [lifecycle] }).runOnce()`
    const child = spawn(process.execPath, ['--input-type=module', '--eval', code], { stdio: 'inherit' })
    expect(await once(child, 'exit')).toEqual([null, 'SIGKILL'])
    const { outbox } = (await jobs().findOne({ _id: 'j' }))!['progress']
    expect(outbox).toMatchObject({ open: [{ seq: 2 }, { seq: 3 }], by: expect.any(String), tries: 1 })
    const { told, lifecycle } = jobsWith()
    const replica = await prepared([lifecycle])
    await replica.runOnce()
    expect(told).toEqual([]) // its lease goes on
    await pass(41_000)
    await replica.runOnce()
    expect(told.map(({ seq, attempt }) => [seq, attempt])).toEqual([
      [2, 2],
      [3, 1],
    ])
    expect((await jobs().findOne({ _id: 'j' }))!['progress'].outbox).toEqual({ seq: 3 })
  })
})
