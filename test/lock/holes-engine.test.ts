import { describe, expect, test } from '@jest/globals'
import { Replica } from '../../src/index.js'
import { sleep } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { recordingObserver, thingOf, things, thingWith } from '../support/thing.js'

describe('holes that the model found, in the engine', () => {
  const database = useDatabase()

  test('5. a chain whose document was taken: its next step never begins', async () => {
    const { db } = database
    const begun: number[] = []
    const observer = recordingObserver()
    const lifecycle = thingWith(async (doc, step) => {
      begun.push(doc.n ?? 0)
      if (begun.length === 2) await things(db).updateOne({ _id: 'a' }, { $set: { lockedBy: 'other~1#1.1' } })
      return begun.length < 5 ? step.again({ set: { n: begun.length } }) : step.moveTo('Created')
    })
    const replica = new Replica({ db, lifecycles: [lifecycle], observer })
    await things(db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.runOnce()
    await replica.stop()
    expect(begun).toEqual([0, 1])
    expect(observer.losses).toMatchObject([{ id: 'a', how: 'refused' }])
    expect(await things(db).findOne({ _id: 'a' })).toMatchObject({ lockedBy: 'other~1#1.1', n: 1, phase: 'Creating' })
  })

  test("7. a chain of agains that never yields: the owner's Deleted is never applied", async () => {
    const { db } = database
    const lifecycle = thingWith(async (_doc, step) => {
      await sleep(20)
      return step.again()
    })
    const replica = new Replica({ db, lifecycles: [lifecycle] })
    await replica.start()
    try {
      await things(db).insertOne({ _id: 'a', phase: 'Creating' })
      // Alike ones in a row are one entry with a count.
      await eventually(
        async () => ((await things(db).findOne({ _id: 'a' }))?.['progress']?.history?.[0]?.count ?? 0) > 3,
      )
      await things(db).updateOne({ _id: 'a' }, { $set: { state: 'Deleted' } })
      await eventually(async () => (await things(db).countDocuments()) === 0)
    } finally {
      await replica.stop()
    }
  })

  test('7. ... and others would starve: with all places taken by endless chains, a third document has its turn', async () => {
    const { db } = database
    const steps = new Map<string, number>()
    const lifecycle = thingWith(
      async (doc, step) => {
        steps.set(doc._id, (steps.get(doc._id) ?? 0) + 1)
        await sleep(200)
        return step.again()
      },
      thingOf({ concurrency: 1 }),
    )
    const replica = new Replica({ db, lifecycles: [lifecycle], grace: '100ms' })
    await things(db).insertMany(['a', 'b', 'c', 'd'].map((_id) => ({ _id, phase: 'Creating' })))
    await replica.start()
    try {
      await eventually(() => steps.size === 4)
    } finally {
      await replica.stop()
    }
  })

  test('12. SIGTERM that unlocks under a running handler: another replica begins beside it', async () => {
    const { db } = database
    let running = 0
    let together = 0
    let release = () => {}
    const released = new Promise<void>((resolve) => {
      release = resolve
    })
    const lifecycle = () =>
      thingWith(
        async (_doc, step) => {
          running += 1
          together = Math.max(together, running)
          await released // ignores its signal
          running -= 1
          return step.moveTo('Created')
        },
        thingOf({ concurrency: 1 }),
      )
    const one = new Replica({ db, lifecycles: [lifecycle()], grace: '50ms' })
    await things(db).insertMany([
      { _id: 'a', phase: 'Creating' },
      { _id: 'b', phase: 'Creating' },
    ])
    await one.prepare()
    await one.tick()
    await eventually(() => running === 1 && one.status().held === 2)
    const stopping = one.stop()
    // What was claimed and not begun is unlocked at once; what runs keeps its lease.
    await eventually(async () => (await things(db).countDocuments({ lockedBy: { $exists: true } })) === 1)
    await stopping
    const held = await things(db).findOne({ lockedBy: { $exists: true } })
    expect(held).toMatchObject({ phase: 'Creating' })
    expect(held!['lockedAt'].getTime()).toBeGreaterThan(0)
    const two = new Replica({ db, lifecycles: [lifecycle()], grace: '50ms' })
    await two.prepare()
    await two.tick()
    await eventually(() => two.status().running === 1)
    await two.tick()
    expect((await things(db).findOne({ _id: held!._id }))?.['lockedBy']).toBe(held!['lockedBy'])
    expect(together).toBe(2) // the two documents, never one document twice
    release()
    await two.idle()
    // The handler that outlived its replica has ended: its outcome was recorded under its token, or its lease runs out.
    await two.stop()
  })
})
