import { describe, expect, jest, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { type CallbackEvent, lifecycleOf, Replica, silentLogger } from '../../src/index.js'
import { backDate } from '../../src/testing/index.js'
import { randomNumbers } from '../support/random.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { type Job, jobsWith, useJobs } from './callbacks-fixture.js'
import { crashingReplicas } from './crashing-replicas.js'

jest.setTimeout(120_000)

const DOCUMENTS = 12
const CRASHES = 12

describe('callbacks beside crashes', () => {
  const { jobs, insert, pass, database } = useJobs()
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
      const other = { name: 'other', collection: 'Other', phases: { Begun: { next: ['Done'] }, Done: { rest: true } } }
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
        const each = async ({ id, seq }: CallbackEvent<Job>) => {
          if (id !== 'poison' || seq !== 1) return void told.add(`${id} ${seq}`)
          proxy.refuse()
          killed.resolve()
          await new Promise(() => undefined)
        }
        const replica = new Replica({
          db: client.db(database.db.databaseName),
          lifecycles: [
            jobsWith(each).lifecycle,
            lifecycleOf()
              .define({ ...other, callbacks: ['onMoved'], callbackTimeout: '200ms', maxAttempts: 3 } as never)
              .handle(
                { Begun: async (_: unknown, step: { moveTo(to: string): unknown }) => step.moveTo('Done') } as never,
                {
                  onMoved: each as never,
                } as never,
              ) as never,
          ],
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
      expect([...told].sort()).toEqual(expect.arrayContaining(innocents.flatMap((id) => [`${id} 1`, `${id} 2`])))
      expect(await jobs().distinct('_id', { 'progress.outbox.next': { $exists: true } })).toEqual(['poison'])
      expect(await others.countDocuments({ 'progress.outbox.next': { $exists: true } })).toBe(0)
    },
  )
})
