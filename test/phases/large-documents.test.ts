import { describe, expect, test } from '@jest/globals'
import { OwnerClient } from '../../src/index.js'
import { useDatabase } from '../support/database.js'
import { thing, things } from '../support/thing.js'
import {
  bigDocument,
  expectHealthyDoneIn,
  expectOthersRecorded,
  LIMIT,
  LONGEST_PAUSE_MS,
  putHealthyIn,
  watchedReplica,
} from './beside-healthy.js'

describe('documents that refuse writes as they are too large, in front of 100 healthy ones', () => {
  const database = useDatabase()

  test('three within 200 bytes of 16 MiB: no outcome is lost, each is told once, tried again ever more seldom', async () => {
    const { one, events, logger, clock } = watchedReplica(database.db)
    await one.prepare()
    for (const spare of [0, 100, 200]) await things(database.db).insertOne(bigDocument(`big-${spare}`, spare))
    await putHealthyIn(database.db)
    await expectHealthyDoneIn(database.db, () => one.runOnce())
    const big = await things(database.db)
      .find({ _id: /^big/ }, { projection: { blob: 0 } })
      .toArray()
    expect(big.slice(0, 2)).toEqual([0, 100].map((spare) => ({ _id: `big-${spare}`, phase: 'Creating' })))
    // This one has room for a claim and for no outcome: its lease runs out, and its claims are counted.
    expect(big[2]).toMatchObject({ phase: 'Creating', lockedBy: expect.any(String), progress: { claims: 1 } })
    expect(events.map(({ reason, fate }) => [reason, fate])).toEqual(Array(3).fill(['tooLarge', 'skipped']))
    expect(one.status().skipped).toBe(3)
    // They are tried again after their pauses, without a word.
    for (let again = 0; again < 2; again += 1) {
      clock.advance(LONGEST_PAUSE_MS)
      expect((await one.runOnce()).due).toBeGreaterThan(0)
    }
    expect(logger.lines.filter((line) => line.message.includes('refuses writes (tooLarge)'))).toHaveLength(3)
    // Its owner makes room: it goes on by itself.
    await things(database.db).updateOne({ _id: 'big-0' }, { $set: { blob: '' } })
    clock.advance(LONGEST_PAUSE_MS)
    await one.runOnce()
    expect(await things(database.db).findOne({ _id: 'big-0' })).toMatchObject({ phase: 'Created' })
    expect(one.status().skipped).toBe(2)
  })

  test('an outcome that is too large, among 100: its error is recorded, the others are too', async () => {
    await things(database.db).insertOne({ _id: 'bad', phase: 'Creating', blob: 'x'.repeat(LIMIT - 200_000) })
    await expectOthersRecorded(database.db, /larger than|exceeds maximum/)
  })
})

describe('an owner who inserts what is too large', () => {
  const database = useDatabase()

  test.each([
    [15, { onDuplicate: 'replaceWaiting' }],
    [17, { onDuplicate: 'ignore' }],
    [17, {}],
  ])('%d MB with %j: it says so, and what may be', async (mb, options) => {
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', lockedBy: 'r~1#1.1', lockedAt: new Date(8e12) })
    const owner = new OwnerClient<any>(database.db, thing.model, { doorbell: 'off' })
    const insert = owner.insert({ _id: 'a', blob: 'x'.repeat(mb * 1024 * 1024) }, options as never)
    await expect(insert).rejects.toMatchObject({
      name: 'InvalidDocument',
      message: expect.stringMatching(
        new RegExp(`^thing a: expected a document of at most 16 MB .*, got ${mb}\\.0 MB; .*; nothing was inserted$`),
      ),
    })
    expect(await things(database.db).findOne({ _id: 'a' })).not.toHaveProperty('progress')
  })
})
