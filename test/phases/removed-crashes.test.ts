import { describe, expect, jest, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { DocumentExists, OwnerClient } from '../../src/index.js'
import { removeDocument } from '../../src/operations/index.js'
import { useEnds } from '../support/ends.js'
import { randomNumbers } from '../support/random.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { jobsWith, removedJob, type Told, useJobs } from './callbacks-fixture.js'
import { crashingReplicas } from './crashing-replicas.js'

jest.setTimeout(240_000)

const TURNS = 60
const IDS = ['a', 'b', 'c', 'd']

/** Each document that is inserted has a life of its own, whatever `_id` it has. */
type Living = { readonly life?: number }

describe('removals beside crashes, inserts and states', () => {
  const { jobs, stored, pass, database } = useJobs()
  const replicaThatCrashes = crashingReplicas(database)
  const ends = useEnds()

  /** An owner each of whose removals may lose its connection, before or after the command is executed. */
  async function owner(random: () => number) {
    const proxy = await TcpProxy.start(database.uri)
    ends.push(() => proxy.stop())
    const client = await new MongoClient(proxy.uri, { retryWrites: false }).connect()
    ends.push(() => client.close(true))
    const db = client.db(database.db.databaseName)
    const own = new OwnerClient<any>(db, removedJob.model, { doorbell: 'off' })
    return async (id: string) => {
      const how = random()
      if (how < 0.2) proxy.cutBefore('update')
      else if (how < 0.4) proxy.cutAfter('update')
      const isByForce = random() < 0.7
      const system = { db, models: [removedJob.model], doorbell: 'off' } as const
      const removing = isByForce ? own.remove(id) : removeDocument(system, { id })
      await removing.catch(() => undefined)
      proxy.pass()
    }
  }

  test.each([1, 2, 3, 4])(
    'each is told, at least once, last, in order, and only of what is gone for good: seed %i',
    async (seed) => {
      const random = randomNumbers(seed)
      const told = new Map<number, Told[]>()
      const wrong: string[] = []
      const each = async (one: Told) => {
        const { life } = one.document as Living
        if (life === undefined) return
        const before = told.get(life) ?? []
        told.set(life, [...before, one])
        const last = before.at(-1)
        const name = `${one.id} (life ${life}): ${one.seq} ${one.callback}`
        if (one.seq !== (last?.seq ?? 0) && one.seq !== (last?.seq ?? 0) + 1) wrong.push(`${name} after ${last?.seq}`)
        if (last?.callback === 'onRemoved' && one.callback !== 'onRemoved') wrong.push(`${name} after its removal`)
        const now = await stored(one.id)
        if (now?.['life'] !== life) wrong.push(`${name} when it is gone`)
        if (one.callback === 'onRemoved' && now?.['phase'] !== '$removed:job') wrong.push(`${name} while it lives`)
        if (random() < 0.2) throw new Error('the receiver is away')
      }
      const fresh = (calmly = false) =>
        replicaThatCrashes(calmly ? () => 1e9 : random, jobsWith(each as never, removedJob).lifecycle)
      const own = new OwnerClient<any>(database.db, removedJob.model, { doorbell: 'off' })
      const remove = await owner(random)
      const alive = [await fresh(), await fresh()]
      const lives: number[] = []
      let [crashes, newest] = [0, 0]
      const insert = (document: object, onDuplicate: 'ignore' | 'wake' | 'runAgain') =>
        own.insert(document, { onDuplicate }).catch((error) => {
          if (!(error instanceof DocumentExists)) throw error
        })
      const turn = async (isCalm: boolean) => {
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
          alive[i] = await fresh(isCalm)
        }
        await pass(15_000)
        // So that none waits for a person.
        await jobs().updateMany({ 'progress.outbox.tries': { $gt: 1 } }, { $set: { 'progress.outbox.tries': 1 } })
      }
      const act = async (id: string) => {
        const what = random()
        if (what < 0.4) {
          const life = ++newest
          const onDuplicate = random() < 0.5 ? 'ignore' : 'wake'
          const inserted = await insert({ _id: id, life, fails: random() < 0.2 }, onDuplicate)
          if (inserted?.kind === 'inserted') lives.push(life)
        } else if (what < 0.5) {
          // It keeps the life of what it finds.
          await insert({ _id: id }, 'runAgain')
        } else if (what < 0.75) await remove(id)
        else await own.setState(id, 'Deleted')
      }
      for (let i = 0; i < TURNS; i += 1) {
        const acts = [act(IDS[i % 4]!), act(IDS[Math.floor(random() * 4)]!)]
        await Promise.all([...acts, random() < 0.4 ? turn(false) : undefined])
      }
      for (let i = 0; i < 200 && (await jobs().countDocuments()) > 0; i += 1) {
        if (i % 5 === 0) for (const id of IDS) await own.remove(id)
        await turn(true)
      }
      expect(wrong).toEqual([])
      expect(await jobs().find().toArray()).toEqual([])
      expect(crashes).toBeGreaterThan(3)
      const untold = lives.filter((life) => told.get(life)?.at(-1)?.callback !== 'onRemoved')
      expect(untold).toEqual([])
      expect(lives.length).toBeGreaterThan(5)
    },
  )
})
