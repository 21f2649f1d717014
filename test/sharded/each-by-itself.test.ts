import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { type Collection, type Document, MongoClient } from 'mongodb'
import { learnSharding } from '../../src/database/index.js'
import {
  encodeSleepsAnew,
  endLeasesOf,
  LIFECYCLES_COLLECTION,
  PARKED_AT,
  RefusingDocuments,
  Renewals,
  redateLeases,
  removeFinal,
  termsOf,
  updateAround,
} from '../../src/lock/index.js'
import { uncountClaims } from '../../src/lock/lease/lease.js'
import { wakeSleepers } from '../../src/lock/move/owner-writes.js'
import { renameUpdate, ruleUpdate } from '../../src/lock/move/rules.js'
import { RepairLook } from '../../src/lock/repair/repair.js'
import { noticeEdits } from '../../src/schedules/edit-watch.js'
import { Schedules } from '../../src/schedules/index.js'
import { systemClock } from '../../src/time/index.js'
import {
  ago,
  claimer,
  ENDS,
  endOf,
  LOCK_TIMEOUT_MS,
  lockedCollection,
  PHASE,
  put,
  TERMS,
  verdictsOf,
} from '../lock/fixture.js'
import { useDatabase } from '../support/database.js'
import { shard } from './chunks.ts'
import { ShardedCluster } from './cluster.ts'
import { describeWithMongos } from './mongos.js'

const IDS = Array.from({ length: 12 }, (_, n) => n)
const REFUSES = 3

describeWithMongos('in a sharded collection each document is written by itself', () => {
  let cluster: ShardedCluster
  let monitored: MongoClient
  /** Updates and deletes, of one document and of several, without those of the tests themselves. */
  const written = { one: 0, several: 0 }
  beforeAll(async () => {
    cluster = await ShardedCluster.start()
    monitored = new MongoClient(cluster.uris[0], { monitorCommands: true })
    monitored.on('commandStarted', ({ command }) => {
      for (const one of (command['updates'] ?? command['deletes'] ?? []) as Document[]) {
        written[one['multi'] === true || one['limit'] === 0 ? 'several' : 'one'] += 1
      }
    })
  }, 240_000)
  const database = useDatabase(() => cluster.uris[0])
  afterAll(async () => {
    await monitored?.close()
    await cluster?.close()
  }, 60_000)

  /** As the product writes to it, and as the tests do. */
  let things: Collection
  let raw: Collection
  beforeEach(async () => {
    await shard(database.db, 'Thing', { _id: 'hashed' })
    raw = await lockedCollection(database.db)
    things = monitored.db(database.db.databaseName).collection('Thing', { writeConcern: { w: 'majority' } })
    await learnSharding(database.db, ['Thing'])
    Object.assign(written, { one: 0, several: 0 })
  })
  /** One for each document that changed, and maybe some that didn't match. */
  const expectEachAlone = (atLeast: number) => {
    expect(written.several).toBe(0)
    expect(written.one).toBeGreaterThanOrEqual(atLeast)
  }
  const all = (fields: Document = {}) => put(raw, ...IDS.map((_id) => ({ _id, phase: PHASE, ...fields })))
  const refuse = () =>
    database.db.command({ collMod: 'Thing', validator: { $or: [{ _id: { $ne: REFUSES } }, { lockedBy: 'nobody' }] } })
  const claimedAll = async () => {
    await all()
    const { claims, identity } = await claimer(things)
    const { claimed } = await claims.claimBatch(PHASE, IDS.length)
    return { identity, leases: claimed.map(({ lease }) => lease) }
  }
  const count = (filter: Document) => raw.countDocuments(filter)

  test.each([1, IDS.length])('claims of %d', async (limit) => {
    await all()
    const { claims } = await claimer(things)
    expect((await claims.claimBatch(PHASE, limit)).claimed).toHaveLength(limit)
    expect(written.several).toBe(0)
    expect(await count({ lockedBy: { $exists: true } })).toBe(limit)
  })

  test('a claim of documents of which one refuses: it is told, and the others are claimed', async () => {
    await all()
    await refuse()
    const { claims } = await claimer(things)
    const { claimed, refused } = await claims.claimBatch(PHASE, IDS.length)
    expect(claimed).toHaveLength(IDS.length - 1)
    expect(refused.map(({ id }) => id)).toEqual([REFUSES])
    expectEachAlone(IDS.length)
  })

  test.each(ENDS)('ends: %s', async (_, end) => {
    const { leases } = await claimedAll()
    expect(
      await verdictsOf(
        things,
        leases.map((lease) => endOf(lease, end, { set: { n: 1 } })),
      ),
    ).toEqual(leases.map(() => 'recorded'))
    expect(await count({ n: 1 })).toBe(IDS.length)
    expectEachAlone(2 * IDS.length)
  })

  test('an end that is refused is told, and the others are recorded', async () => {
    const { leases } = await claimedAll()
    await refuse()
    const ends = leases.map((lease) => endOf(lease, ENDS[2]![1]))
    const verdicts = await verdictsOf(things, ends)
    expect(verdicts).toEqual(leases.map(({ id }) => (id === REFUSES ? 'rejected' : 'recorded')))
    expectEachAlone(2 * IDS.length)
  })

  test('renewals, and claims that are not counted', async () => {
    const { leases } = await claimedAll()
    await raw.updateOne({ _id: 5 as never }, { $set: { lockedBy: 'other~abcdef#1.1' } })
    const lost = await new Renewals(things, () => TERMS, systemClock).renew(leases)
    expect(lost.map(({ id }) => id)).toEqual([5])
    await uncountClaims(things, TERMS, leases)
    expect(await count({ 'progress.claims': 0 })).toBe(IDS.length - 1)
    expectEachAlone(3 * IDS.length)
  })

  test('sleeps that are ended', async () => {
    await all({ lockedAt: ago(1_000), fence: 7, progress: { resumeAt: ago(-60_000), since: ago(1_000) } })
    const sleepers = IDS.map((id) => ({ id, fence: id === 5 ? 6 : 7 }))
    expect(await wakeSleepers(things, TERMS, [PHASE], sleepers)).toBe(IDS.length - 1)
    expect(await count({ lockedAt: new Date(0) })).toBe(IDS.length - 1)
    expectEachAlone(IDS.length)
  })

  describe('what moves documents, around one that refuses', () => {
    const rule = { when: 'Deleted', from: [PHASE], moveTo: 'Deleting' }
    const rename = { from: PHASE, to: 'Deleting' }
    test.each<[string, (ids: readonly unknown[]) => readonly [Document, Document[]]]>([
      ['a rule', (ids) => ruleUpdate(TERMS, rule, ids)],
      ['a rename', (ids) => renameUpdate(TERMS, rename, ids)],
    ])('%s', async (_, update) => {
      await all({ state: 'Deleted', lockedAt: new Date(0) })
      await refuse()
      const { matched, refused } = await updateAround(things, IDS, (ids) => update(ids)[0], update(IDS)[1])
      expect(refused.map(({ id }) => id)).toEqual([REFUSES])
      expect(matched).toBeLessThanOrEqual(IDS.length - 1)
      expect(await count({ phase: 'Deleting' })).toBe(IDS.length - 1)
      expectEachAlone(IDS.length)
    })
  })

  test.each([0, 60_000])('documents of a final phase that are kept for %d ms', async (keepForMs) => {
    // The last one by itself, too.
    for (const ids of [IDS, [0]]) {
      await put(raw, ...ids.map((_id) => ({ _id, phase: PHASE, progress: { since: ago(1_000) } })))
      const { serverClock } = await claimer(raw)
      const dueBound = serverClock.dueBound(LOCK_TIMEOUT_MS)!
      const request = { phase: PHASE, keepForMs, limit: 100, dueBound, random: Math.random }
      const { removed, armed } = await removeFinal(things, TERMS, request)
      expect({ removed, armed }).toEqual(
        keepForMs === 0 ? { removed: ids.length, armed: 0 } : { removed: 0, armed: ids.length },
      )
    }
    expectEachAlone(IDS.length + 1)
  })

  test('repairs, and leases from the future', async () => {
    await all({ lockedAt: new Date('9999-12-31T23:00:00Z') })
    const terms = () => TERMS
    const refusing = new RefusingDocuments(systemClock)
    const { repaired } = await new RepairLook(things, terms, [PHASE], refusing, () =>
      systemClock.monotonicMs(),
    ).repair()
    expect(repaired).toHaveLength(IDS.length)
    expect(await count({ lockedAt: PARKED_AT })).toBe(IDS.length)
    await all({ lockedAt: ago(-3_600_000), lockedBy: 'gone~abcdef#1.1' })
    expect(await redateLeases(things, TERMS, [PHASE])).toBe(IDS.length)
    expectEachAlone(2 * IDS.length)
  })

  test('leases of a process that has ended', async () => {
    const { identity } = await claimedAll()
    await database.db
      .collection(LIFECYCLES_COLLECTION)
      .insertOne({ _id: 'thing' as never, lockTimeout: LOCK_TIMEOUT_MS })
    const leased = { lifecycle: 'thing', collection: things, phases: [PHASE], terms: TERMS }
    expect(await endLeasesOf(database.db, leased, identity)).toBe(IDS.length)
    expect(await count({ lockedAt: new Date(0) })).toBe(IDS.length)
    expectEachAlone(2 * IDS.length)
  })

  test('sleeps under a longer lockTimeout', async () => {
    const progress = { $literal: {} }
    await all({ lockedAt: new Date(1_000_000), progress })
    await raw.updateMany({}, [{ $set: { 'progress.resumeAt': new Date(1_000_000 + LOCK_TIMEOUT_MS) } }])
    expect(await encodeSleepsAnew(things, termsOf(60_000), [PHASE], LOCK_TIMEOUT_MS)).toBe(IDS.length)
    expect(await count({ lockedAt: new Date(1_000_000 + LOCK_TIMEOUT_MS - 60_000) })).toBe(IDS.length)
    expectEachAlone(IDS.length)
  })

  test('schedules that are paused together, and edited by hand', async () => {
    await shard(database.db, 'schedules', { _id: 'hashed' })
    const db = monitored.db(database.db.databaseName)
    const schedules = new Schedules({ db, tasks: { work: () => undefined } })
    for (const id of IDS) await schedules.upsert(`s${id}`, { task: 'work', cron: '0 0 1 1 *' })
    await lockedCollection(database.db, 'schedules')
    expect(await schedules.pauseAll()).toBe(IDS.length)
    expect(await schedules.resumeAll()).toBe(IDS.length)
    const stored = db.collection('schedules')
    await database.db.collection('schedules').updateMany({}, { $set: { phase: 'Actve' } })
    const { noticed } = await noticeEdits(stored as never, null, 100)
    expect(noticed).toBe(IDS.length)
    expect(await stored.countDocuments({ phase: 'Broken' })).toBe(IDS.length)
    expectEachAlone(3 * IDS.length)
  })
})
