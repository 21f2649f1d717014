import { describe, expect, test } from '@jest/globals'
import { eventually, useDatabase } from '../support/database.js'
import { gate, recordingObserver, replicaOf, thingOf, things, thingWith } from '../support/thing.js'

describe('a replica that is stopped', () => {
  const database = useDatabase()
  const lifecycle = thingOf({ concurrency: 4 })
  const phases = async () => (await things(database.db).find().toArray()) as Record<string, any>[]

  test('unlocks at once what it has claimed and not begun, and lets running steps finish', async () => {
    const slow = gate()
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        await slow.wait
        return step.moveTo('Created')
      }, lifecycle),
    )
    await things(database.db).insertMany(Array.from({ length: 8 }, (_, i) => ({ _id: `a${i}`, phase: 'Creating' })))
    await replica.tick()
    await eventually(() => expect(replica.status()).toMatchObject({ running: 4, queued: 1 }))
    const stopped = replica.stop()
    await eventually(async () => expect((await phases()).filter((doc) => doc['lockedBy'])).toHaveLength(4))
    const released = (await phases()).find((doc) => doc['progress']?.history?.[0]?.outcome === 'released')
    expect(released).toMatchObject({ lockedAt: new Date(0), progress: { claims: 0 } })
    slow.open()
    await stopped
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(4)
    expect(await things(database.db).countDocuments({ lockedBy: { $exists: true } })).toBe(0)
    await replica.tick()
    expect(replica.status()).toMatchObject({ held: 0, notReady: ['stopping'] })
  })

  test('refuses to start again, and says what to do', async () => {
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created'), lifecycle),
    )
    await replica.start()
    await replica.stop()
    await expect(replica.start()).rejects.toMatchObject({
      name: 'ReplicaStopped',
      message: expect.stringMatching(/^expected a replica that was never stopped, but .+ was: .*new Replica/),
    })
  })

  test('after grace the signals abort; a step that gives up then is unlocked without an attempt', async () => {
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        await new Promise((_resolve, reject) => step.signal.addEventListener('abort', () => reject(step.signal.reason)))
        return step.moveTo('Created')
      }, lifecycle),
      { grace: '50ms' },
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.tick()
    await eventually(() => expect(replica.status().running).toBe(1))
    await replica.stop()
    // It may be the last command of the replica, on its way still.
    await eventually(async () => {
      const [doc] = await phases()
      expect(doc).toMatchObject({ lockedAt: new Date(0), progress: { attempts: 0, claims: 0 } })
      expect(doc!['lockedBy']).toBeUndefined()
    })
  })

  test('never unlocks under a running handler: one that does not end keeps its lease', async () => {
    const stuck = gate()
    const observer = recordingObserver()
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        await stuck.wait
        return step.moveTo('Created')
      }, lifecycle),
      { grace: '50ms', observer },
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.tick()
    await eventually(() => expect(replica.status().running).toBe(1))
    await replica.stop()
    const [doc] = await phases()
    expect(doc!['lockedBy']).toContain('#')
    expect(doc!['lockedAt'].getTime()).toBeGreaterThan(0)
    stuck.open()
  })

  test('a chain of steps ends with the one that runs: the document is free for others', async () => {
    const entered = gate()
    const slow = gate()
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        entered.open()
        await slow.wait
        return step.again({ step: 'next' })
      }, lifecycle),
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.tick()
    await entered.wait
    const stopped = replica.stop()
    slow.open()
    await stopped
    const [doc] = await phases()
    expect(doc).toMatchObject({ lockedAt: new Date(0), progress: { step: 'next', claims: 0 } })
    expect(doc!['lockedBy']).toBeUndefined()
  })

  test('stopping twice, or before it was started, is fine', async () => {
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    )
    await Promise.all([replica.stop(), replica.stop()])
  })
})
