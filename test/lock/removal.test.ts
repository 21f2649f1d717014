import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { PARKED_AT, removeFinal } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { ago, claimer, interrupted, LOCK_TIMEOUT_MS, lockedCollection, put, read, TERMS } from './fixture.js'

const FINAL = 'Deleted'
const HOUR = 3_600_000

describe('the removal of final documents', () => {
  const database = useDatabase()

  async function remove(documents: Document[], keepForMs: number) {
    const collection = await lockedCollection(database.db)
    await put(collection, ...documents.map((document) => ({ phase: FINAL, ...document })))
    const run = async () => {
      const { serverClock } = await claimer(collection)
      const dueBound = serverClock.dueBound(LOCK_TIMEOUT_MS)!
      return removeFinal(collection, TERMS, { phase: FINAL, keepForMs, limit: 100, dueBound, random: () => 0.5 })
    }
    return { collection, result: await run(), run }
  }
  const asleepFor = (ms: number) => ago(LOCK_TIMEOUT_MS - ms)

  test('without keepFor: at once, but only what is due', async () => {
    const { collection, result } = await remove(
      [{ _id: 'due' }, { _id: 'held', lockedAt: '$$NOW', lockedBy: 'x#1.1' }, { _id: 'other', phase: 'Deleting' }],
      0,
    )
    expect(result).toMatchObject({ removed: 1, armed: 0 })
    expect((await collection.find().toArray()).map((document) => document._id)).toEqual(['held', 'other'])
  })

  test('with keepFor: counted from when it entered the phase', async () => {
    const { collection, result } = await remove(
      [
        { _id: 'old', lockedAt: asleepFor(-1), progress: { since: ago(HOUR + 10) } },
        { _id: 'young', progress: { since: ago(HOUR / 2) } },
        { _id: 'asleep', lockedAt: asleepFor(HOUR), progress: { since: ago(2 * HOUR) } },
      ],
      HOUR,
    )
    expect(result).toMatchObject({ removed: 1, armed: 1 })
    const young = await read(collection, 'young')
    const end = new Date(young['progress'].since.getTime() + HOUR)
    expect(young).toMatchObject({ lockedAt: new Date(end.getTime() - LOCK_TIMEOUT_MS), progress: { resumeAt: end } })
    expect(await collection.countDocuments()).toBe(2)
  })

  test.each([0, HOUR])(
    'what is no longer due when it is to be deleted stays as it is (keepFor %d)',
    async (keepForMs) => {
      const collection = await lockedCollection(database.db)
      const final = { phase: FINAL, progress: { since: ago(2 * HOUR) } }
      await put(collection, { _id: 'held', ...final }, { _id: 'asleep', ...final }, { _id: 'due', ...final })
      const { serverClock } = await claimer(collection)
      // Another version, in which this phase is none to end in, has gone on with two of them since the look.
      const meanwhile = async () => {
        await put(collection, { _id: 'held', ...final, lockedAt: '$$NOW', lockedBy: 'x#1.1' })
        await put(collection, { _id: 'asleep', ...final, lockedAt: asleepFor(HOUR) })
      }
      const through = interrupted(collection, 'deleteMany', { before: meanwhile })
      const dueBound = serverClock.dueBound(LOCK_TIMEOUT_MS)!
      const request = { phase: FINAL, keepForMs, limit: 100, dueBound, random: () => 0.5 }
      expect(await removeFinal(through, TERMS, request)).toMatchObject({ removed: 1, armed: 0 })
      expect(await read(collection, 'held')).toMatchObject({ lockedBy: 'x#1.1' })
      expect(await read(collection, 'asleep')).toMatchObject({ phase: FINAL })
    },
  )

  test('a document that was written into the phase by hand is kept for keepFor from now', async () => {
    const { collection, result, run } = await remove([{ _id: 'a', lockedBy: 'expired#1.1' }], HOUR)
    expect(result).toMatchObject({ removed: 0, armed: 1 })
    const document = await read(collection, 'a')
    expect(document).not.toHaveProperty('lockedBy')
    expect(document['progress'].resumeAt.getTime() - document['progress'].since.getTime()).toBe(HOUR)
    expect(await run()).toMatchObject({ removed: 0, armed: 0 })
  })

  test.each([0, HOUR])(
    "a document whose phase is an array is its owner's: put aside, never deleted (keepFor %d)",
    async (keepForMs) => {
      const theirs = { _id: 'a', phase: [FINAL, 'x'], own: 1 }
      const { collection, result, run } = await remove([theirs], keepForMs)
      expect(result.removed).toBe(0)
      expect(await read(collection, 'a')).toEqual({ ...theirs, lockedAt: PARKED_AT })
      expect(await run()).toMatchObject({ removed: 0, armed: 0 })
    },
  )

  test("a progress of the owner's: put aside rather than looked at again for ever", async () => {
    const theirs = { _id: 'a', phase: FINAL, progress: 'mine' }
    const { collection, result } = await remove([theirs], HOUR)
    expect(result.removed).toBe(0)
    expect(await read(collection, 'a')).toEqual({ ...theirs, lockedAt: PARKED_AT })
  })
})
