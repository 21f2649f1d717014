import { describe, expect, test } from '@jest/globals'
import { eventually, useDatabase } from '../support/database.js'
import { gate, replicaOf, SteppedClock, thingOf, things, thingWith } from '../support/thing.js'

describe('what a replica has claimed and can not begin, as all of its places hang', () => {
  const database = useDatabase()
  const lifecycle = () => thingOf({ concurrency: 4, lockTimeout: '3s' })

  test('is let go after 1.5 s and not claimed again, so that another replica runs it; it counts as no claim', async () => {
    const hangs = gate()
    const clock = new SteppedClock()
    const ids = Array.from({ length: 5 }, (_, i) => `thing-${i}`)
    await things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating' })))
    const stuck = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        await hangs.wait
        return step.moveTo('Created')
      }, lifecycle()),
      { clock },
    )
    await stuck.tick()
    await eventually(() => expect(stuck.status()).toMatchObject({ running: 4, queued: 1 }))
    clock.advance(1_501)
    await eventually(() => expect(stuck.status()).toMatchObject({ running: 4, queued: 0, held: 4 }))
    const free = await things(database.db).findOne({ phase: 'Creating', lockedBy: { $exists: false } })
    expect(free).toMatchObject({ lockedAt: new Date(0), progress: { claims: 0 } })
    await stuck.tick()
    await stuck.tick()
    expect(stuck.status().held).toBe(4)

    const idle = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created'), lifecycle()),
    )
    await idle.runOnce()
    expect(await things(database.db).findOne({ _id: free!._id })).toMatchObject({ phase: 'Created' })
    hangs.open()
    await stuck.idle()
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(5)
    await stuck.runOnce()
  })
})
