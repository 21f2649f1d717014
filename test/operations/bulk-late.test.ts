import { describe, expect, test } from '@jest/globals'
import { Replica, silentLogger } from '../../src/index.js'
import { operationLifecycle } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { ShiftedClock } from '../support/thing.js'
import { ASLEEP, BulkWorld, many } from './bulk-world.js'

describe('a process that works on an operation', () => {
  const database = useDatabase()

  test('and stood still past its lease begins nothing more of its page, which may be another process by now', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(20, ASLEEP))
    const { _id } = await w.begin('wake', { all: true }, { concurrency: 1 })
    const clock = new ShiftedClock()
    const db = w.writingThings((count) => {
      if (count === 2) clock.advance(60_000)
    })
    const late = new Replica({ db: w.db, lifecycles: [operationLifecycle({ db })], logger: silentLogger, clock })
    await late.tick()
    await late.idle()
    expect(await w.things.countDocuments({ lockedAt: new Date(0) })).toBe(3)
    await late.stop()
    await database.db.collection('phaselock.operations').updateMany({}, { $set: { lockedAt: new Date(0) } })
    expect(await w.finish(_id)).toMatchObject({ condition: 'Done', counts: { done: 20 } })
  })
})
