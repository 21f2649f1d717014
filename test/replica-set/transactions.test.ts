import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { type ClientSession, type Document, MongoClient } from 'mongodb'
import { DOORBELL_COLLECTION } from '../../src/doorbell/index.js'
import type { Replica } from '../../src/index.js'
import { eventually } from '../support/database.js'
import { replicaOf, thing, things, thingWith } from '../support/thing.js'
import { describeWithMongod } from './mongod.js'
import { useReplicaSet } from './support.js'

describeWithMongod("an owner's transactions on a replica set", () => {
  let replica: Replica
  let session: ClientSession
  // Before the database goes.
  afterEach(async () => {
    await session.endSession()
    await replica.stop()
  })

  const { database } = useReplicaSet({ members: 1, args: ['--setParameter', 'enableTestCommands=1'] })
  const made: string[] = []
  const lifecycle = thingWith(async (doc, step) => {
    made.push(doc._id)
    return step.moveTo('Created')
  })
  const owner = thing.handle(lifecycle.handlers as never)

  const rings = async (id: string): Promise<Document[]> =>
    await database.db.collection(DOORBELL_COLLECTION).find({ ids: id }).toArray()
  const inTransaction = (work: () => Promise<unknown>) => session.withTransaction(async () => void (await work()))
  const insert = (_id: string) => owner.insert({ _id }, { session })

  beforeEach(async () => {
    made.length = 0
    owner.attach(database.db)
    session = database.client.startSession()
    replica = replicaOf(database.db, lifecycle)
    await replica.prepare()
  })

  /** It hears rings, and nobody ticks it: what isn't rung for stays. */
  async function listens(): Promise<void> {
    replica.wakeBetweenTicks()
    await eventually(() => expect(replica.status().doorbell).toBe('capped'))
    // The first ring that is heard shows that its look at the beginning is over.
    await owner.insert({ _id: 'first' })
    await eventually(() => expect(made).toEqual(['first']))
  }

  test('an insert is rung for after its commit, while the session lives on; an aborted one never', async () => {
    await listens()
    const aborted = inTransaction(async () => {
      await insert('aborted')
      throw new Error('no')
    })
    await expect(aborted).rejects.toThrow('no')
    session.startTransaction()
    await insert('a')
    await owner.owner().flush()
    expect(await rings('a')).toEqual([])
    await session.commitTransaction()
    await eventually(() => expect(made).toEqual(['first', 'a']))
    expect(await owner.find('aborted')).toBeNull()
    expect(await rings('aborted')).toEqual([])
    expect(session.hasEnded).toBe(false)
    // A second transaction of the same session.
    await inTransaction(() => insert('b'))
    await eventually(() => expect(made).toEqual(['first', 'a', 'b']))
    expect(await owner.find('b')).toMatchObject({ phase: 'Created', progress: { attempts: 0 } })
  })

  test.each([
    ['is aborted', 'commitTransaction', { errorCode: 251, errorLabels: ['TransientTransactionError'] }, 2],
    ['has an unknown outcome', 'commitTransaction', { writeConcernError: { code: 91, errmsg: 'shutting down' } }, 1],
    ['meets a write conflict', 'insert', { errorCode: 112, errorLabels: ['TransientTransactionError'] }, 2],
  ])(
    'one that %s at first is retried: one document, and a ring after the last commit',
    async (_, command, how, runs) => {
      await listens()
      const data = { failCommands: [command], appName: 'owner', ...how }
      await database.client.db('admin').command({ configureFailPoint: 'failCommand', mode: { times: 1 }, data })
      const client = await new MongoClient(database.uri, { appName: 'owner' }).connect()
      const own = client.startSession()
      try {
        const inserting = thing.handle(lifecycle.handlers as never).attach(client.db(database.db.databaseName))
        let ran = 0
        await own.withTransaction(async () => {
          ran += 1
          await inserting.insert({ _id: 'a' }, { session: own })
        })
        expect(ran).toBe(runs)
        await eventually(() => expect(made).toEqual(['first', 'a']))
        expect(await things(database.db).countDocuments({ _id: 'a' })).toBe(1)
        await inserting.owner().flush()
        expect((await rings('a')).length).toBeGreaterThan(0)
      } finally {
        await own.endSession()
        await client.close()
      }
    },
  )

  test.each(['commitTransaction', 'abortTransaction'] as const)(
    'a due document that an open transaction has locked holds up the others once, costs no claim, and is done after %s',
    async (end) => {
      const ids = Array.from({ length: 40 }, (_, n) => `d${String(n).padStart(2, '0')}`)
      await things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating' })))
      session.startTransaction()
      await things(database.db).updateOne({ _id: 'd05' }, { $set: { n: 1 } }, { session })
      replica.wakeBetweenTicks()
      const ticks = async () => {
        await replica.tick()
        expect(made).toHaveLength(ids.length - 1)
      }
      await eventually(ticks, { timeoutMs: 50_000, everyMs: 1_000 })
      expect(made).not.toContain('d05')
      expect(await things(database.db).findOne({ _id: 'd05' })).toEqual({ _id: 'd05', phase: 'Creating' })
      await session[end]()
      await eventually(
        async () => {
          await replica.tick()
          expect(made).toHaveLength(ids.length)
        },
        { everyMs: 1_000 },
      )
      await eventually(async () =>
        expect(await owner.find('d05')).toMatchObject({ phase: 'Created', progress: { attempts: 0, claims: 0 } }),
      )
      expect((await owner.find('d05'))?.progress?.history).toHaveLength(1)
      expect((await owner.find('d05'))?.n).toBe(end === 'commitTransaction' ? 1 : undefined)
    },
  )
})
