import { afterEach, expect, jest, test } from '@jest/globals'
import { type Collection, type Db, type Document, MongoClient } from 'mongodb'
import { readBack, traceOf } from '../../src/lock/end/read-back.js'
import {
  Claimant,
  Claims,
  changeLockTimeout,
  LIFECYCLES_COLLECTION,
  Looks,
  readLockTimeouts,
  ServerClock,
} from '../../src/lock/index.js'
import { mongoLockProvider } from '../../src/locks/index.js'
import { systemClock } from '../../src/time/index.js'
import { claimer, LOCK_TIMEOUT_MS, lockedCollection, PHASE, TERMS } from '../lock/fixture.js'
import { eventually } from '../support/database.js'
import { describeWithMongod } from './mongod.js'
import { useReplicaSet } from './support.js'

// Two members are started and elect another primary in each test.
jest.setTimeout(300_000)

/** The primary steps down 2 s after it has lost the others: until then it answers. */
const GIVES_UP_AFTER_MS = 300

describeWithMongod('what only a deposed primary has is undone, so nothing rests on it', () => {
  const closing: MongoClient[] = []
  afterEach(async () => {
    for (const client of closing.splice(0)) await client.close()
  })
  const replicaSet = useReplicaSet()
  const { database } = replicaSet
  const things = () => database.db.collection<Document & { _id: string }>('Thing')

  /** What `work` does reaches the primary alone; nothing that it writes is acknowledged. */
  const onOldPrimary = (work: (db: Db) => Promise<void>) =>
    replicaSet.set.undone(async (host) => {
      const client = new MongoClient(`mongodb://${host}/?directConnection=true`, {
        socketTimeoutMS: GIVES_UP_AFTER_MS,
        retryWrites: false,
        retryReads: false,
      })
      closing.push(client)
      await work(client.db(database.db.databaseName))
    })
  const byMajority = (db: Db) => db.collection('Thing', { writeConcern: { w: 'majority' } })

  test('a verdict: by what the primary has the outcome is recorded, by what the majority has it is to be sent again', async () => {
    await things().insertOne({ _id: 'a', phase: PHASE, lockedBy: 't1', lockedAt: new Date() })
    const write = { token: 't1', nextToken: 't2' }
    const seen: Record<string, string> = {}
    const look = async (collection: Collection, name: string) => {
      const local = (await collection.findOne({ _id: 'a' as never }, { readConcern: { level: 'local' } })) as Document
      seen[`${name}, local`] = traceOf(local, TERMS, write)
      seen[`${name}, majority`] = traceOf([...(await readBack(collection, TERMS, ['a'])).values()][0], TERMS, write)
    }
    await onOldPrimary(async (db) => {
      const again = byMajority(db).updateOne({ _id: 'a' as never, lockedBy: 't1' }, { $set: { lockedBy: 't2' } })
      await expect(again).rejects.toThrow(/timed out/)
      await look(db.collection('Thing'), 'old')
    })
    await look(database.db.collection('Thing'), 'new')
    expect(seen).toEqual({
      'old, local': 'written',
      'old, majority': 'notWritten',
      'new, local': 'notWritten',
      'new, majority': 'notWritten',
    })
  })

  test('a claim whose answer is lost: by what the primary has it is won, by what the majority has it never was', async () => {
    await lockedCollection(database.db)
    await things().insertOne({ _id: 'a', phase: PHASE })
    const { serverClock, clock, identity } = await claimer(database.db.collection('Thing'), { name: 'old' })
    await onOldPrimary(async (db) => {
      const claimant = new Claimant(identity)
      const claims = new Claims({ collection: byMajority(db), terms: () => TERMS, claimant, clock, serverClock })
      await expect(claims.claimBatch(PHASE, 10)).rejects.toThrow(/timed out/)
      const local = await db.collection('Thing').findOne({ _id: 'a' as never }, { readConcern: { level: 'local' } })
      expect(local?.['lockedBy']).toMatch(new RegExp(`^${identity}`))
    })
    expect(await things().findOne({ _id: 'a' })).toEqual({ _id: 'a', phase: PHASE })
    const { claims } = await claimer(await lockedCollection(database.db), { name: 'new' })
    expect((await claims.claimBatch(PHASE, 10)).claimed).toHaveLength(1)
  })

  test('the lockTimeout in force: a change that only the primary has is adopted by nobody', async () => {
    const lifecycles = database.db.collection<Document & { _id: string }>(LIFECYCLES_COLLECTION)
    await lifecycles.insertOne({ _id: 'thing', collection: 'Thing', lockTimeout: LOCK_TIMEOUT_MS })
    await onOldPrimary(async (db) => {
      await expect(changeLockTimeout(db, 'thing', 2 * LOCK_TIMEOUT_MS)).rejects.toThrow(/timed out/)
      const local = await db.collection(LIFECYCLES_COLLECTION).findOne({}, { readConcern: { level: 'local' } })
      expect(local?.['lockTimeout']).toBe(2 * LOCK_TIMEOUT_MS)
      expect((await readLockTimeouts(db, ['thing'])).get('thing')).toMatchObject({ dueMs: LOCK_TIMEOUT_MS })
      const looks = new Looks(db, systemClock, new ServerClock(systemClock))
      const request = { lifecycle: 'thing', collection: 'Thing', terms: TERMS, phases: [PHASE], rules: [] }
      const { lockTimeouts } = await looks.look([request])
      expect(lockTimeouts.get('thing')).toMatchObject({ dueMs: LOCK_TIMEOUT_MS, leaseMs: LOCK_TIMEOUT_MS })
    })
    expect(await lifecycles.findOne()).toMatchObject({ lockTimeout: LOCK_TIMEOUT_MS })
  })

  test('a named lock: it is not granted, and free for others', async () => {
    const config = { name: 'report', lockAtMostFor: '1h' } as const
    await mongoLockProvider(database.db).lock({ name: 'other', lockAtMostFor: '1h' })
    await onOldPrimary(async (db) => {
      await expect(mongoLockProvider(db).lock(config)).rejects.toThrow(/nothing is run/)
      const local = await db.collection('shedLock').findOne({ _id: 'report' as never })
      expect(local).not.toBeNull()
    })
    await eventually(async () => expect(await mongoLockProvider(database.db).lock(config)).toBeDefined())
  })
})
