import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { backDate } from '../../src/testing/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate, recordingObserver, replicaOf, thingOf, things, thingWith } from '../support/thing.js'

/** What docs/caveats.md says of owners, seen: limits that are known, not promises. */
describe('what an owner costs himself', () => {
  let running: ReturnType<typeof gate<void>>
  let started: string[]

  afterEach(() => running.open())
  const database = useDatabase()
  beforeEach(() => {
    running = gate()
    started = []
  })

  const held = (observer = recordingObserver()) => {
    const lifecycle = thingWith(async (_doc, step) => {
      started.push(`${step.name ?? 'first'} ${step.fence}`)
      if (step.name === undefined && started.length === 1) return step.again({ step: 'second' })
      await running.wait
      return step.moveTo('Created', { set: { effects: ['by the step'] } })
    })
    return { observer, lifecycle, replica: replicaOf(database.db, lifecycle, { observer }) }
  }

  test('replaceOne under a running step: the outcome is dropped, another claims at once, its step name is gone, the fence grows', async () => {
    const { db } = database
    const one = held()
    await things(db).insertOne({ _id: 'a', phase: 'Creating' })
    await one.replica.tick()
    await eventually(() => expect(started).toHaveLength(2))
    const claimedAt = (await things(db).findOne({ _id: 'a' }))!['lockedAt'] as Date
    await eventually(() => Date.now() > claimedAt.getTime() + 2)
    await things(db).replaceOne({ _id: 'a' }, { phase: 'Creating', n: 7 })

    const other = replicaOf(db, one.lifecycle)
    await other.tick()
    await eventually(() => expect(started).toHaveLength(3))
    const [, second, third] = started.map((line) => line.split(' '))
    expect([second![0], third![0]]).toEqual(['second', 'first'])
    expect(Number(third![1])).toBeGreaterThan(Number(second![1]))
    running.open()
    await Promise.all([one.replica.stop(), other.stop()])
    expect(one.observer.losses).toHaveLength(1)
    expect(await things(db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created', n: 7 })
  })

  test('a phase set by hand under a running step: overwritten by a move', async () => {
    const { db } = database
    const { replica } = held()
    await things(db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.tick()
    await eventually(() => expect(started).toHaveLength(2))
    await things(db).updateOne({ _id: 'a' }, { $set: { phase: 'Deleting' } })
    running.open()
    await replica.stop()
    expect(await things(db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created' })
  })

  test('a phase set by hand keeps the step and the time of entry of the phase before', async () => {
    const { db } = database
    const seen: (string | undefined)[] = []
    const replica = replicaOf(
      db,
      thingOf({
        phases: {
          Creating: { next: ['Created'] },
          Created: { rest: true },
          Deleting: { next: ['Deleted'], deadline: { after: '1h', moveTo: 'Created' } },
          Deleted: { final: true },
        },
      }).handle({
        Creating: async (_doc, step) => (step.name ? step.wait('rain', { for: '1h' }) : step.again({ step: 'wait' })),
        async Deleting(_doc, step) {
          seen.push(step.name)
          return step.wait('rain', { for: '1h' })
        },
      }),
    )
    await things(db).insertMany([
      { _id: 'a', phase: 'Creating' },
      { _id: 'b', phase: 'Creating' },
    ])
    await replica.runOnce()
    await things(db).updateMany({}, { $set: { phase: 'Deleting', lockedAt: new Date(0) } })
    await backDate(db.collection('Thing'), 3_700_000, { filter: { _id: 'b' as never } })
    await replica.runOnce()
    expect(seen).toEqual(['wait'])
    expect(await things(db).findOne({ _id: 'b' })).toMatchObject({ phase: 'Created' })
    await replica.stop()
  })

  test("set replaces a field as a whole; an owner's updatedAt makes the pauses small again", async () => {
    const { db } = database
    const replica = replicaOf(
      db,
      thingWith(async (_doc, step) => step.wait('rain', { set: { effects: ['by the step'] } })),
    )
    await things(db).insertOne({ _id: 'a', phase: 'Creating', effects: ['by its owner', 'and more'] })
    await replica.runOnce()
    await backDate(db.collection('Thing'), 100_000)
    await replica.runOnce()
    const pauseMs = async () => {
      const { progress } = (await things(db).findOne({ _id: 'a' }))!
      return progress.resumeAt.getTime() - progress.history.at(-1).at.getTime()
    }
    expect(await pauseMs()).toBeGreaterThan(5_000)
    await things(db).updateOne({ _id: 'a' }, { $set: { updatedAt: new Date(), lockedAt: new Date(0) } })
    await replica.runOnce()
    expect(await pauseMs()).toBeLessThan(5_000)
    expect(await things(db).findOne({ _id: 'a' })).toMatchObject({ effects: ['by the step'] })
    await replica.stop()
  })
})
