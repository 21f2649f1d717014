import { describe, expect, test } from '@jest/globals'
import type { Db, Document } from 'mongodb'
import { DUTIES_COLLECTION, LIFECYCLES_COLLECTION } from '../../src/lock/index.js'
import {
  checkDatabase,
  forgetLifecycle,
  listAudit,
  listRegistrations,
  NotFound,
  Refused,
  registeredLifecycles,
  systemStatus,
} from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, things, thingWith } from '../support/thing.js'

describe('the lifecycles that are registered', () => {
  const database = useDatabase()
  const system = () => ({ db: database.db, models: [], audit: { by: 'ana' } })
  const entries = () => database.db.collection<Document & { _id: string }>(LIFECYCLES_COLLECTION)
  const run = thingWith(async (_doc, step) => step.moveTo('Created'))
  const listed = async () => (await listRegistrations(system())).registrations
  /** As it is 16 minutes after the last replica has stopped. */
  const leftAlone = () => entries().updateMany({}, [{ $set: { handledAt: { $subtract: ['$$NOW', 960_000] } } }])

  async function ranOnce() {
    const replica = replicaOf(database.db, run, { name: 'one' })
    await replica.start()
    await replica.tick()
    return replica
  }

  test('are listed with their documents and live replicas; none is forgotten while it has either', async () => {
    const replica = await ranOnce()
    await things(database.db).insertMany([
      { _id: 'a', phase: 'Created' },
      { _id: 'b', phase: 'Creatng' },
      { _id: 'none' },
    ])
    expect(await listed()).toEqual([
      {
        ...{ lifecycle: 'thing', collection: 'Thing', phases: ['Creating', 'Created', 'Deleting', 'Deleted'] },
        ...{ replicas: [replica.identity], documents: 2, handledAt: expect.any(Date) },
      },
    ])
    await expect(forgetLifecycle(system(), 'thing')).rejects.toThrow(
      /^lifecycle thing was not forgotten: live replicas run it \(one~\w+\); stop them first/,
    )
    await replica.stop()
    const refused = await forgetLifecycle(system(), 'thing').catch((error) => error)
    expect(refused).toBeInstanceOf(Refused)
    expect(refused.obstacle).toEqual({ reason: 'lifecycleInUse', lifecycle: 'thing', documents: 2, replicas: [] })
    expect(refused.message).toContain('2 documents of Thing are in its phases, or in none that is known')
    await things(database.db).deleteMany({ phase: { $exists: true } })
    expect(await forgetLifecycle(system(), 'thing')).toMatchObject({ lifecycle: 'thing', documents: 0 })
    expect(await listed()).toEqual([])
    expect(await things(database.db).countDocuments()).toBe(1)
    await expect(forgetLifecycle(system(), 'thing')).rejects.toBeInstanceOf(NotFound)
    const { records: told } = await listAudit({ db: database.db, models: [] }, { action: 'lifecycles forget' })
    expect(told.map(({ outcome }) => outcome)).toEqual(['refused', 'done', 'refused', 'refused'])
  })

  test('documents of another lifecycle in the same collection are not its own', async () => {
    await (await ranOnce()).stop()
    await entries().insertOne({ _id: 'other', collection: 'Thing', phases: ['Packing'] })
    await things(database.db).insertMany([
      { _id: 'a', phase: 'Packing' },
      { _id: 'b', phase: '(removed) other' },
    ])
    const before = await listed()
    expect(before.map(({ lifecycle, documents }) => [lifecycle, documents])).toEqual([
      ['thing', 1],
      ['other', 2],
    ])
  })

  test('what check proposes for one that is retired is what ends its complaints, and those of status', async () => {
    await (await ranOnce()).stop()
    await entries().insertMany([
      { _id: "it's", collection: 'Its', lockTimeout: 30_000 },
      { _id: 'bad', collection: '' },
    ])
    await leftAlone()
    await database.db.collection<{ _id: string }>(DUTIES_COLLECTION).insertMany([
      {
        ...{ _id: 'lifecycles without replicas', everyMs: 300_000, by: 'x', begunAt: new Date(), tookMs: 1 },
        found: { unhandled: ['thing'] },
      } as never,
      { _id: 'sweep of thing', everyMs: 300_000, by: 'x', begunAt: new Date(), tookMs: 1 } as never,
    ])
    const models = async () =>
      (await registeredLifecycles(database.db, 'here', { needed: false })).map(({ model }) => model)
    const check = async () =>
      (await checkDatabase({ db: database.db, models: await models(), repair: false }))
        .filter((one) => one.check === 'lifecycles')
        .flatMap(({ findings }) => findings.map(({ advice }) => advice))
    const complaints = async () =>
      (await systemStatus({ db: database.db, models: await models() })).problems.filter((one) => one.includes('thing'))
    expect(await complaints()).toEqual([
      expect.stringMatching(/^thing: no replica has looked after it for five minutes \(phaselock causes \w+\)$/),
    ])
    expect((await check()).map((advice) => /phaselock lifecycles forget .*/.exec(advice)?.[0])).toEqual([
      'phaselock lifecycles forget bad',
      'phaselock lifecycles forget thing',
      `phaselock lifecycles forget 'it'\\''s'`,
    ])
    for (const name of ['thing', "it's", 'bad']) await forgetLifecycle(system(), name)
    expect(await check()).toEqual([])
    expect(await complaints()).toEqual([])
    expect(await database.db.collection(DUTIES_COLLECTION).countDocuments()).toBe(0)
  })

  test('one that a replica looks after between the reading and the deletion stays', async () => {
    await (await ranOnce()).stop()
    await leftAlone()
    const meanwhile = [
      () => entries().updateOne({ _id: 'thing' }, [{ $set: { handledAt: '$$NOW' } }]),
      () => entries().updateOne({ _id: 'thing' }, [{ $set: { replicas: [{ name: 'two~1', seenAt: '$$NOW' }] } }]),
    ]
    for (const happens of meanwhile) {
      const db = beforeDeleteOne(database.db, happens)
      await expect(forgetLifecycle({ ...system(), db }, 'thing')).rejects.toThrow(
        'a replica has looked after it meanwhile',
      )
      expect(await entries().countDocuments()).toBe(1)
      await entries().updateMany({}, { $set: { replicas: [] } })
    }
  })
})

/** The same database, where something happens just before a `deleteOne`. */
function beforeDeleteOne(db: Db, happens: () => Promise<unknown>): Db {
  const bound = <T extends object>(target: T, key: PropertyKey) => {
    const value = Reflect.get(target, key)
    return typeof value === 'function' ? value.bind(target) : value
  }
  return new Proxy(db, {
    get(target, key) {
      if (key !== 'collection') return bound(target, key)
      return (...args: Parameters<Db['collection']>) =>
        new Proxy(target.collection(...args), {
          get(collection, name) {
            if (name !== 'deleteOne') return bound(collection, name)
            return async (...given: Parameters<typeof collection.deleteOne>) => {
              await happens()
              return collection.deleteOne(...given)
            }
          },
        })
    },
  })
}
