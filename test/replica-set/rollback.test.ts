import { afterEach, expect, jest, test } from '@jest/globals'
import { type Collection, type Db, type Document, type Filter, type FindOptions, MongoClient } from 'mongodb'
import { lifecycleOf } from '../../src/index.js'
import { readBack, traceOf } from '../../src/lock/end/read-back.js'
import {
  Claimant,
  changeLockTimeout,
  childDocuments,
  childIndex,
  countChildren,
  countChildrenBut,
  LIFECYCLES_COLLECTION,
  Looks,
  readLockTimeouts,
  ServerClock,
  takeOutboxes,
} from '../../src/lock/index.js'
import { mongoLockProvider } from '../../src/locks/index.js'
import { changeNamed, KeptChanges } from '../../src/operations/bulk/changes.js'
import { StepChildren } from '../../src/phases/engine/run/step-children.js'
import { waitFor } from '../../src/phases/engine/run/step-waits.js'
import { systemClock } from '../../src/time/index.js'
import { ClaimsByName, claimer, LOCK_TIMEOUT_MS, lockedCollection, PHASE, TERMS } from '../lock/fixture.js'
import { eventually } from '../support/database.js'
import { describeWithMongod } from './mongod.js'
import { useReplicaSet } from './support.js'

// Two members are started and elect another primary in each test.
jest.setTimeout(300_000)

const child = lifecycleOf<{ _id: string }>().define({
  name: 'child',
  collection: 'Thing',
  child: true,
  phases: { Working: { next: ['Done'] }, Done: { rest: true } },
})

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
      const claims = new ClaimsByName({ collection: byMajority(db), terms: () => TERMS, claimant, clock, serverClock })
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

  /** A collection whose writes were acknowledged, and whose next read is answered by the old primary after `write` has reached that one alone. */
  const deposedBeforeRead = (write: (things: Collection<Document & { _id: string }>) => Promise<unknown>) =>
    new Proxy(things() as unknown as Collection, {
      get(target, name) {
        const found = Reflect.get(target, name)
        if (name !== 'find') return typeof found === 'function' ? found.bind(target) : found
        return (filter: Filter<Document>, options: FindOptions) => ({
          async toArray() {
            let rows: Document[] = []
            await onOldPrimary(async (db) => {
              await expect(write(byMajority(db) as never)).rejects.toThrow(/timed out/)
              rows = await db.collection('Thing').find(filter, options).toArray()
            })
            return rows
          },
        })
      },
    })

  const parent = { lifecycle: 'parent', id: 'p' }
  const named = (key: string) => ({ parent: { ...parent, key, list: 'List' } })

  test('children, and a document that is waited for: their ends and removals that are undone let nobody go on', async () => {
    await lockedCollection(database.db)
    await things().createIndex(childIndex('progress'))
    const ids = ['ends', 'goes', 'moves']
    await things().insertMany(ids.map((_id) => ({ _id, phase: PHASE, progress: named(_id) })))
    await onOldPrimary(async (db) => {
      const collection = db.collection('Thing')
      const writes = [
        byMajority(db).updateMany({ _id: { $in: ['ends', 'moves'] as never[] } }, { $set: { phase: 'Done' } }),
        byMajority(db).deleteOne({ _id: 'goes' as never }),
        byMajority(db).insertOne({ _id: 'comes' as never, phase: PHASE, progress: named('comes') }),
      ]
      for (const { status } of await Promise.allSettled(writes)) expect(status).toBe('rejected')
      const local = await collection.find({}, { readConcern: { level: 'local' } }).toArray()
      expect(local.map(({ _id, phase }) => `${_id} ${phase}`).sort()).toEqual([
        'comes Working',
        'ends Done',
        'moves Done',
      ])
      const of = { collection, progress: 'progress', parent }
      expect(await countChildren(of, ['Done'])).toEqual([{ phase: PHASE, parked: false, count: 3 }])
      expect(await countChildrenBut(of, ['Done'])).toBe(3)
      expect((await childDocuments(of, 10)).map(({ _id }) => _id).sort()).toEqual(ids)

      // What they write has been done before: the old primary acknowledges nothing any more.
      const written = { updateOne: async () => ({}), find: collection.find.bind(collection) }
      const related = {
        modelOf: async () => child.model,
        collectionOf: () => written,
        childrenOf: () => of,
        inserted: () => undefined,
      }
      const holder = { aggregate: () => ({ toArray: async () => [] }) }
      const lease = { id: 'p', token: 'r~1#1.1', leftMs: () => 1_000 }
      const env = { model: { name: 'parent', settings: child.model.settings }, collection: holder, related }
      const run = { env, held: { lease, phase: { name: 'Inserting' } }, progress: {}, awaits: undefined }
      expect(await waitFor(run as never, child.at('moves', 'Done'), {})).toMatchObject({ done: false, phase: PHASE })
      const stored: unknown[] = []
      const children = new StepChildren({ ...run, checkpoint: async () => void stored.push('list') } as never)
      const inserting = children.insert([child.child('comes', { _id: 'comes' })], { list: 'List' })
      await expect(inserting).rejects.toMatchObject({ name: 'LeaseLost' })
      expect(stored).toEqual([])
    })
    expect((await things().find().toArray()).map(({ _id, phase }) => `${_id} ${phase}`).sort()).toEqual(
      ids.map((id) => `${id} ${PHASE}`),
    )
  })

  test('callbacks: an outcome that is undone after the outbox was taken is not told', async () => {
    await lockedCollection(database.db)
    const entry = (seq: number) => ({ seq, callback: 'onMoved', at: new Date(0) })
    const outbox = { seq: 1, open: [entry(1)], next: 'onMoved', dueAt: new Date(0) }
    await things().insertOne({ _id: 'a', phase: PHASE, progress: { outbox } })
    const collection = deposedBeforeRead((old) =>
      old.updateOne({ _id: 'a' }, { $push: { 'progress.outbox.open': entry(2) } as never }),
    )
    const of = { collection, progress: 'progress', callbacks: ['onMoved'] as const, phases: [PHASE] }
    const how = { token: 'r!1', leaseMs: 60_000, justStored: false, time: { now: new Date() }, projection: undefined }
    const { documents } = await takeOutboxes(of, ['a'], how)
    expect(documents.map(({ progress }) => progress.outbox.open.map(({ seq }: Document) => seq))).toEqual([[1]])
  })

  test('an operation: what its documents were is not what is undone', async () => {
    await lockedCollection(database.db)
    await things().insertOne({ _id: 'a', phase: PHASE, state: 'Wanted' })
    const documents = deposedBeforeRead((old) => old.updateOne({ _id: 'a' }, { $set: { state: 'Never' } }))
    const page = { operation: 'o', first: 0, ids: ['a'], fields: 'state', fence: 1, isRepeated: false } as const
    await KeptChanges.of(database.db, documents, TERMS, page)
    expect(await changeNamed(database.db, 'o#000000000')).toMatchObject({ document: 'a', state: 'Wanted' })
  })
})
