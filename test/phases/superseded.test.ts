import { describe, expect, test } from '@jest/globals'
import { Lease } from '../../src/lock/index.js'
import type { StepKind } from '../../src/phases/engine/concurrency/step-semaphore.js'
import type { Held } from '../../src/phases/engine/lease/held.js'
import { HeldDocuments } from '../../src/phases/engine/lease/held.js'
import { systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate, recordingObserver, replicaOf, thingOf, things, thingWith } from '../support/thing.js'

/** A process that was paused for longer than its leases last claims its own documents again while its old steps still run. */
describe('a document that a replica has lost and claims again', () => {
  const database = useDatabase()

  test('its first step is asked to stop and records nothing; the second one counts; nothing stays held', async () => {
    const observer = recordingObserver()
    const first = gate()
    const signals: AbortSignal[] = []
    const handler = thingWith(
      async (_doc, step) => {
        signals.push(step.signal)
        if (signals.length === 1) await first.wait
        return step.moveTo(signals.length === 1 ? 'Deleting' : 'Created', { set: { n: signals.length } })
      },
      thingOf({ concurrency: 2 }),
    )
    const replica = replicaOf(database.db, handler, { observer })
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.tick()
    await eventually(() => expect(signals).toHaveLength(1))
    await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedAt: new Date(0) }, $unset: { lockedBy: 1 } })
    await replica.tick()
    await eventually(async () => {
      expect(await things(database.db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created', n: 2 })
    })
    expect(signals[0]!.aborted).toBe(true)
    expect(signals[1]!.aborted).toBe(false)
    await eventually(() => expect(replica.status()).toMatchObject({ held: 0, running: 1 }))
    first.open()
    await eventually(() => expect(replica.status().running).toBe(0))
    await eventually(() => expect(observer.losses.length).toBeGreaterThan(0))
    expect(await things(database.db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created', n: 2 })
    await replica.stop()
  })

  test('takes one place, of the kind of the phase that it is in now', () => {
    const documents = new HeldDocuments()
    const held = (kind: StepKind, run?: object) => {
      const lease = new Lease('a', {} as never, 'token', 1, 0, 30_000, systemClock)
      return { lease, kind, run } as unknown as Held
    }
    const places = () => [documents.size, documents.sizeOf('thread'), documents.sizeOf('loop'), documents.watched]
    const aborted: string[] = []
    const [first, second, third] = [
      held('thread', { abort: (why: string) => aborted.push(why) }),
      held('thread'),
      held('loop'),
    ] as const
    documents.add(first)
    documents.add(second)
    expect(places()).toEqual([1, 1, 0, 2]) // the first one's handler runs on
    expect(aborted).toEqual(['lease lost'])
    expect(documents.has(first)).toBe(false)
    expect(first.lease.leftMs()).toBe(0)
    documents.add(third)
    expect(places()).toEqual([1, 0, 1, 2])
    for (const one of [first, second]) documents.drop(one)
    expect(places()).toEqual([1, 0, 1, 1])
    documents.drop(third)
    expect(places()).toEqual([0, 0, 0, 0])
  })
})

describe('a replica', () => {
  const database = useDatabase()

  test('that is stopped while it starts never ticks, says that it is there, or listens', async () => {
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    )
    const starting = replica.start()
    await replica.stop()
    await starting
    expect((replica as unknown as { ticker: unknown }).ticker).toBeUndefined()
    expect(replica.status().doorbell).toBe('off')
    const listed = await database.db
      .collection('phaselock.lifecycles')
      .find({ replicas: { $exists: true } })
      .toArray()
    expect(listed).toEqual([])
  })
})
