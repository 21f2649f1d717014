import { describe, expect, test } from '@jest/globals'
import type { Collection, Document } from 'mongodb'
import { CLAIM_INDEX, endLeasesOf, heldByReplica, LIFECYCLES_COLLECTION, PARKED_AT } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { ago, claimed, claimer, LOCK_TIMEOUT_MS, lockedCollection, PHASE, put, serverNow, TERMS } from './fixture.js'

const RESTING = 'Created'

describe('the leases of a process that has ended', () => {
  const database = useDatabase()

  async function registered(): Promise<Collection> {
    const lifecycles = database.db.collection<{ _id: string; lockTimeout: number }>(LIFECYCLES_COLLECTION)
    await lifecycles.insertOne({ _id: 'thing', lockTimeout: LOCK_TIMEOUT_MS })
    return lockedCollection(database.db)
  }
  const end = (collection: Collection, replica: string) =>
    endLeasesOf(database.db, { lifecycle: 'thing', collection, phases: [PHASE], terms: TERMS }, replica)

  test('end at once: the next claim counts as after a crash, and those of others stay', async () => {
    const collection = await registered()
    const [dead, other] = [await claimer(collection, { name: 'pod-a' }), await claimer(collection, { name: 'pod-b' })]
    await put(collection, { _id: 'a', phase: PHASE, lockedAt: new Date(0) })
    const lost = await claimed(collection, dead)
    await put(collection, { _id: 'b', phase: PHASE, lockedAt: new Date(0) })
    await claimed(collection, other)
    const before = await collection.findOne({ _id: 'b' as never })

    expect(await end(collection, `${dead.identity}0`)).toBe(0)
    expect(await end(collection, dead.identity)).toBe(1)
    expect(await collection.findOne({ _id: 'b' as never })).toEqual(before)
    expect(await end(collection, dead.identity)).toBe(0)

    const taken = await claimed(collection, other)
    expect(taken.document).toMatchObject({ _id: 'a', progress: { claims: 2 } })
    expect(taken.lease.fence).toBeGreaterThan(lost.lease.fence)
  })

  test('are found by the held range: keys of what is due, asleep, parked or at rest are not read', async () => {
    const collection = await registered()
    const documents: Document[] = Array.from({ length: 3_000 }, (_, i) => [
      { _id: `due ${i}`, phase: PHASE, lockedAt: new Date(i) },
      { _id: `parked ${i}`, phase: PHASE, lockedAt: PARKED_AT },
      { _id: `asleep ${i}`, phase: PHASE, lockedAt: new Date(PARKED_AT.getTime() - 1 - i) },
      { _id: `resting ${i}`, phase: RESTING, lockedAt: new Date(i) },
    ]).flat()
    await collection.insertMany(documents)
    await put(
      collection,
      ...Array.from({ length: 5 }, (_, i) => ({
        _id: `held ${i}`,
        phase: PHASE,
        lockedAt: ago(i * 1_000),
        lockedBy: `a~1#${i}.1`,
      })),
    )
    const now = await serverNow(collection)
    const filter = heldByReplica('a~1', [PHASE], new Date(now.getTime() - LOCK_TIMEOUT_MS), now)
    const { executionStats } = await collection.find(filter, { hint: CLAIM_INDEX }).explain('executionStats')
    expect(executionStats.nReturned).toBe(5)
    expect(executionStats.totalKeysExamined).toBeLessThanOrEqual(5 + 2)
    expect(await end(collection, 'a~1')).toBe(5)
  })
})
