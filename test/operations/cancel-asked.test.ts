import { describe, expect, test } from '@jest/globals'
import type { Db } from 'mongodb'
import { LIFECYCLES_COLLECTION } from '../../src/lock/index.js'
import { cancelStep, predict, type System } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { thing, things } from '../support/thing.js'

const ref = { id: 'a' }
const heldBy = (lockedBy: string) => ({ lockedAt: new Date(), lockedBy })

describe('a cancel says whom it has asked', () => {
  const database = useDatabase()
  const systemOn = (db: Db): System => ({ db, models: [thing.model], doorbell: 'off' })
  const insert = async (fields: object) => {
    const entries = database.db.collection<{ _id: string }>(LIFECYCLES_COLLECTION)
    await entries.insertOne({ _id: 'thing', lockTimeout: 30_000 } as never)
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', ...fields })
  }

  /** The same database; after the first look at things one of them is claimed. */
  function claimedAfterLook(lockedBy: string): Db {
    let looks = 0
    return new Proxy(database.db, {
      get(target, name) {
        if (name !== 'collection') return Reflect.get(target, name)
        return (called: string, ...more: never[]) => {
          const collection = target.collection(called, ...more)
          if (called !== 'Thing') return collection
          const aggregate = collection.aggregate.bind(collection)
          collection.aggregate = ((...given: never[]) => {
            const cursor = aggregate(...given)
            const toArray = cursor.toArray.bind(cursor)
            cursor.toArray = async () => {
              if (looks++ === 1) await things(database.db).updateOne({ _id: 'a' }, { $set: heldBy(lockedBy) })
              return toArray()
            }
            return cursor
          }) as never
          return collection
        }
      },
    })
  }

  test.each([
    ['it was due when it was read', {}],
    ['it was under another claim when it was read', heldBy('api~1#2.3')],
  ])('%s', async (_name, fields) => {
    await insert(fields)
    const asked = await cancelStep(systemOn(claimedAfterLook('api~1#7.1')), ref, { by: 'ana', waitMs: 0 })
    expect(asked).toMatchObject({ holder: 'api~1#7.1', ended: false })
  })

  test('it is in a phase that this version lacks', async () => {
    await insert({ phase: 'Odd', ...heldBy('api~1#2.3') })
    const system = systemOn(database.db)
    expect(await predict(system, { action: 'cancel', by: 'ana', ref })).toMatchObject({ would: 'change' })
    expect(await cancelStep(system, ref, { by: 'ana', waitMs: 0 })).toMatchObject({ holder: 'api~1#2.3', ended: false })
  })
})
