import { describe, expect, test } from '@jest/globals'
import type { Db, Document } from 'mongodb'
import { cancelStep, findDocument, predict, type System, seenIn } from '../../src/operations/index.js'
import { Schedules } from '../../src/schedules/index.js'
import { useDatabase } from '../support/database.js'

const ref = { id: 's@1' }
const IN_AN_HOUR = new Date(Date.now() + 3_600_000)

describe('a cancel of a run that waits for the document that it has started', () => {
  const database = useDatabase()
  const runs = () => database.db.collection<Document & { _id: string }>('runs')
  const systemOn = (db: Db): System => {
    const { lifecycles } = new Schedules({ db: database.db, tasks: { sync: async () => undefined } })
    return { db, models: lifecycles.map(({ model }) => model), doorbell: 'off' }
  }
  const insert = () =>
    runs().insertOne({
      ...{ _id: 's@1', schedule: 's', phase: 'Running', lockedAt: IN_AN_HOUR, fence: 7 },
      started: { lifecycle: 'order', id: 'o1', at: new Date(0) },
    })

  /** The same database, in which the run is changed just before it is written to. */
  const changedBeforeWrite = (): Db =>
    new Proxy(database.db, {
      get(target, name) {
        if (name !== 'collection') return Reflect.get(target, name)
        return (called: string, ...more: never[]) => {
          const collection = target.collection(called, ...more)
          if (called !== 'runs') return collection
          const updateOne = collection.updateOne.bind(collection)
          collection.updateOne = (async (...given: Parameters<typeof updateOne>) => {
            await runs().updateOne({ _id: 's@1' }, { $set: { fence: 8 } })
            return updateOne(...given)
          }) as never
          return collection
        }
      },
    })

  test('it is predicted as it is', async () => {
    await insert()
    const system = systemOn(database.db)
    const predicted = await predict(system, { action: 'cancel', by: 'ana', reason: 'stuck', ref })
    expect(predicted).toMatchObject({
      would: 'change',
      after: { lockedAt: new Date(0), 'stopping.by': 'ana', 'stopping.reason': 'stuck' },
    })
    expect(await runs().findOne()).not.toHaveProperty('stopping')
    expect(await cancelStep(system, ref, { by: 'ana', reason: 'stuck', waitMs: 0 })).toMatchObject({ holder: null })
    expect(await runs().findOne()).toMatchObject({ lockedAt: new Date(0), stopping: { by: 'ana', reason: 'stuck' } })
  })

  test('it is not done to one that has changed since it was seen', async () => {
    await insert()
    const seen = seenIn(systemOn(database.db), await findDocument(systemOn(database.db), ref))
    const cancel = cancelStep(systemOn(changedBeforeWrite()), ref, { by: 'ana', waitMs: 0, seen })
    await expect(cancel).rejects.toMatchObject({ obstacle: { reason: 'changedSince' } })
    expect(await runs().findOne()).not.toHaveProperty('stopping')
  })
})
