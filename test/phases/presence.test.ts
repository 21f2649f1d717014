import { afterEach, describe, expect, test } from '@jest/globals'
import type { Replica } from '../../src/index.js'
import { LIFECYCLES_COLLECTION } from '../../src/lock/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { replicaOf, things, thingWith } from '../support/thing.js'

describe('the replicas that are there', () => {
  const database = useDatabase()
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })

  const lifecycle = () => thingWith(async (_doc, step) => step.moveTo('Created'))
  const start = async () => {
    const replica = replicaOf(database.db, lifecycle())
    replicas.push(replica)
    await replica.start()
    return replica
  }
  const names = async () => {
    const found = await database.db.collection(LIFECYCLES_COLLECTION).findOne({ _id: 'thing' as never })
    return ((found?.['replicas'] ?? []) as { name: string }[]).map(({ name }) => name).sort()
  }

  test('each says so when it starts and when it stops; one that has said nothing for long is forgotten', async () => {
    const one = await start()
    await database.db
      .collection(LIFECYCLES_COLLECTION)
      .updateOne({ _id: 'thing' as never }, { $push: { replicas: { name: 'dead~1', seenAt: new Date(0) } } } as never)
    const two = await start()
    expect(await names()).toEqual([one.identity, two.identity].sort())
    await two.tick()
    expect(Object.entries(two.status().replicas)).toEqual([[expect.stringMatching(/^\d+\.\d+\.\d+/), 2]])
    await database.db
      .collection(LIFECYCLES_COLLECTION)
      .updateOne({ _id: 'thing' as never }, { $unset: { 'replicas.0.version': 1 } } as never)
    // A tick under way may have looked before that.
    await eventually(async () => {
      await two.tick()
      expect(two.status().replicas).toMatchObject({ unknown: 1 })
    })
    await two.stop()
    expect(await names()).toEqual([one.identity])
  })

  test('one that is ticked by hand does not: it shares with nobody, and takes all that is due', async () => {
    await start()
    const byHand = replicaOf(database.db, lifecycle())
    replicas.push(byHand)
    await things(database.db).insertMany(Array.from({ length: 20 }, (_, i) => ({ _id: `t${i}`, phase: 'Creating' })))
    await byHand.runOnce()
    expect(await names()).not.toContain(byHand.identity)
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(20)
  })

  test('what falls to a replica that was killed is done by the others', async () => {
    await start()
    await database.db
      .collection(LIFECYCLES_COLLECTION)
      .updateOne({ _id: 'thing' as never }, [
        { $set: { replicas: { $concatArrays: ['$replicas', [{ name: 'killed~1', seenAt: '$$NOW' }]] } } },
      ])
    await things(database.db).insertMany(Array.from({ length: 100 }, (_, i) => ({ _id: `t${i}`, phase: 'Creating' })))
    await eventually(async () => (await things(database.db).countDocuments({ phase: 'Created' })) === 100)
  })
})
