import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { LeaseLost } from '../../src/index.js'
import type { HistoryEntry } from '../../src/lock/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import {
  type CreatingHandler,
  gate,
  recordingLogger,
  recordingObserver,
  replicaOf,
  ShiftedClock,
  thingOf,
  things,
  thingWith,
} from '../support/thing.js'

const LONG_PAUSES = { firstError: '10m', longestError: '10m' }

describe('steps that take long', () => {
  const database = useDatabase()
  const read = () => things(database.db).findOne({ _id: 'a' }) as Promise<Record<string, any>>

  test('a step longer than lockTimeout keeps its lease: nobody else gets the document', async () => {
    const begun: string[] = []
    const lifecycle = thingOf({ lockTimeout: '6s' })
    const slow = gate()
    const first = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        begun.push('first')
        await slow.wait
        return step.moveTo('Created')
      }, lifecycle),
    )
    const second = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        begun.push('second')
        return step.moveTo('Created')
      }, lifecycle),
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    const running = first.runOnce()
    await eventually(() => expect(begun).toEqual(['first']))
    const claimedAt = (await read())['lockedAt'] as Date
    // Until it has been renewed well past one lockTimeout.
    await eventually(
      async () => {
        await second.runOnce()
        expect((await read())['lockedAt'].getTime()).toBeGreaterThan(claimedAt.getTime() + 6_500)
      },
      { timeoutMs: 60_000, everyMs: 250 },
    )
    slow.open()
    await running
    expect(begun).toEqual(['first'])
    expect((await read())['phase']).toBe('Created')
  })

  test('a step past its timeout is asked to stop; one that does is an attempt with StepTimeout', async () => {
    // The lease is in no danger, and its pause lasts: one attempt, for that reason, on any machine.
    const lifecycle = thingOf({ stepTimeout: '200ms', backOff: LONG_PAUSES })
    const handler = thingWith(async (_doc, step) => {
      await new Promise<void>((resolve) => step.signal.addEventListener('abort', () => resolve()))
      throw step.signal.reason
    }, lifecycle)
    const replica = replicaOf(database.db, handler)
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.runOnce()
    const { progress } = await read()
    expect(progress).toMatchObject({ attempts: 1, error: { name: 'StepTimeout' } })
    expect(progress.error.message).toBe('the step did not end within its step timeout of 200 ms')
  })

  test('one that ignores its signal is given up after one more lockTimeout; its late outcome changes nothing and is counted', async () => {
    const observer = recordingObserver()
    const stuck = gate()
    let leaseLeft: () => number = () => -1
    const lifecycle = thingOf({ lockTimeout: '1s', stepTimeout: '200ms', backOff: LONG_PAUSES })
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        leaseLeft = () => step.leaseLeftMs()
        await stuck.wait
        return step.moveTo('Created')
      }, lifecycle),
      { observer },
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.runOnce()
    expect((await read())['progress']).toMatchObject({ attempts: 1, error: { name: 'StepTimeout' } })
    expect(replica.status().abandoned).toBe(1)
    expect(leaseLeft()).toBe(0)
    stuck.open()
    await eventually(() => expect(replica.status().abandoned).toBe(0))
    expect(observer.losses).toMatchObject([{ how: 'abandoned', id: 'a' }])
    expect((await read())['phase']).toBe('Creating')
  })

  describe('after a pause of the process past its step timeout and its lease', () => {
    const settings = { lockTimeout: '2s', stepTimeout: '1s', backOff: LONG_PAUSES }
    let clock: ShiftedClock
    const outcomes = async () => ((await read())['progress'].history ?? []).map((entry: HistoryEntry) => entry.outcome)

    async function pausedIn(handler: CreatingHandler) {
      clock = new ShiftedClock()
      const begun = gate()
      const whenBegun: CreatingHandler = (doc, step) => {
        begun.open()
        return handler(doc, step)
      }
      const replica = replicaOf(database.db, thingWith(whenBegun, thingOf(settings)), { clock })
      await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
      await replica.tick()
      await begun.wait
      clock.advance(60_000)
      return replica
    }
    const aborted = (signal: AbortSignal) =>
      new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))

    test('its handler is asked to stop first: one that ends then has its outcome recorded', async () => {
      const replica = await pausedIn(async (_doc, step) => {
        await aborted(step.signal)
        return step.moveTo('Created')
      })
      await eventually(() => expect(replica.status().held).toBe(0))
      expect(replica.status().abandoned).toBe(0)
      expect(await read()).toMatchObject({ phase: 'Created' })
      await replica.stop()
    })

    test('one that throws for it uses no attempt, as it was its lease that was in danger', async () => {
      const replica = await pausedIn(async (_doc, step) => {
        await aborted(step.signal)
        throw step.signal.reason
      })
      await eventually(async () => expect(await outcomes()).toEqual(['released']))
      expect((await read())['progress']).toMatchObject({ attempts: 0, claims: 0 })
      await replica.stop()
    })

    test('one that goes on is given up after its grace, without an attempt and without StepTimeout', async () => {
      const stuck = gate()
      const reasons: string[] = []
      const replica = await pausedIn(async (_doc, step) => {
        await aborted(step.signal)
        reasons.push(step.signal.reason.why)
        await stuck.wait
        return step.moveTo('Created')
      })
      await eventually(() => expect(reasons).toEqual(['lease in danger']))
      expect(replica.status().abandoned).toBe(0)
      await eventually(async () => expect(await outcomes()).toEqual(['released']))
      expect(replica.status().abandoned).toBe(1)
      expect((await read())['progress']).toMatchObject({ attempts: 0, claims: 0 })
      expect((await read())['progress']).not.toHaveProperty('error')
      stuck.open()
      await eventually(() => expect(replica.status().abandoned).toBe(0))
      await replica.stop()
    })
  })

  describe('whose lease can’t be renewed', () => {
    let proxy: TcpProxy
    let renewals: MongoClient
    let clock: ShiftedClock

    beforeEach(async () => {
      proxy = await TcpProxy.start(database.uri)
      renewals = new MongoClient(proxy.uri, { serverSelectionTimeoutMS: 100 })
      // The limit is for when it is refused: a busy machine may need longer to connect at all.
      await eventually(() => renewals.connect())
      clock = new ShiftedClock()
    })
    afterEach(async () => {
      await renewals.close()
      await proxy.stop()
    })
    const replicaWith = (handler: CreatingHandler, settings: object = {}) =>
      replicaOf(database.db, thingWith(handler, thingOf(settings)), {
        renewalDb: renewals.db(database.db.databaseName),
        clock,
      })

    test('are asked to stop at two thirds of it, while there is time left', async () => {
      const begun = gate()
      let left = -1
      let why: unknown
      const replica = replicaWith(async (_doc, step) => {
        begun.open()
        await new Promise<void>((resolve) => step.signal.addEventListener('abort', () => resolve()))
        left = step.leaseLeftMs()
        why = step.signal.reason.why
        return step.moveTo('Created')
      })
      await replica.prepare()
      await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
      await replica.tick()
      await begun.wait
      proxy.refuse()
      clock.advance(20_500)
      await eventually(() => expect(why).toBe('lease in danger'), { timeoutMs: 8_000 })
      expect(left).toBeGreaterThan(0)
      await eventually(() => expect(replica.status().held).toBe(0))
      expect(await read()).toMatchObject({ phase: 'Created' })
      await replica.stop()
    })

    test('begin under one with time left only: what stood in line for too long is unlocked instead', async () => {
      const first = gate()
      const begun: [string, boolean][] = []
      const replica = replicaWith(
        async (doc, step) => {
          begun.push([doc._id, step.leaseLeftMs() > 0])
          if (begun.length === 1) await first.wait
          return step.moveTo('Created')
        },
        { concurrency: 1 },
      )
      await replica.prepare()
      await things(database.db).insertMany(['a', 'b'].map((_id) => ({ _id, phase: 'Creating' })))
      await replica.tick()
      await eventually(() => expect(replica.status()).toMatchObject({ held: 2, running: 1 }))
      proxy.refuse()
      clock.advance(31_000)
      first.open()
      await eventually(async () => {
        const done = await things(database.db).countDocuments({ phase: 'Created' })
        if (done < 2) await replica.tick().catch(() => undefined)
        expect(done).toBe(2)
      })
      const [[firstId], [secondId]] = begun as [[string, boolean], [string, boolean]]
      expect(begun).toEqual([
        [firstId, true],
        [secondId, true],
      ])
      const second = await things(database.db).findOne({ _id: secondId })
      expect(second?.['progress'].history.map(({ outcome }: HistoryEntry) => outcome)).toEqual(['released', 'moveTo'])
      await replica.stop()
    })
  })

  test('with five of them a replica is not ready', async () => {
    const stuck = gate()
    const lifecycle = thingOf({ lockTimeout: '1s', stepTimeout: '100ms', backOff: LONG_PAUSES })
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        await stuck.wait
        return step.moveTo('Created')
      }, lifecycle),
    )
    await things(database.db).insertMany([1, 2, 3, 4, 5].map((n) => ({ _id: `a${n}`, phase: 'Creating' })))
    await replica.runOnce()
    expect(replica.status().notReady).toEqual(['5 handlers were given up and still run'])
    stuck.open()
    await eventually(() => expect(replica.status().notReady).toEqual([]))
  })

  test('checkpoint stores fields in the middle of a step and keeps the lease', async () => {
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        const { fence } = step
        await step.checkpoint({ n: 1 })
        expect((await read())['n']).toBe(1)
        await step.checkpoint({ n: 2 })
        expect(step.fence).toBe(fence)
        return step.moveTo('Created')
      }),
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.runOnce()
    expect(await read()).toMatchObject({ n: 2, phase: 'Created' })
  })

  test('checkpoint throws LeaseLost when another has the document, stores nothing, and the outcome is dropped', async () => {
    const observer = recordingObserver()
    const logger = recordingLogger()
    let thrown: unknown
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedBy: 'somebody#1.1' } })
        await step.checkpoint({ n: 1 }).catch((error) => {
          thrown = error
        })
        return step.moveTo('Created', { set: { n: 2 } })
      }),
      { observer, logger },
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.tick()
    await replica.idle()
    expect(thrown).toBeInstanceOf(LeaseLost)
    expect(await read()).toMatchObject({ phase: 'Creating', lockedBy: 'somebody#1.1' })
    expect((await read())['n']).toBeUndefined()
    expect(observer.losses.map((loss) => loss.how)).toEqual(['refused'])
    expect(logger.lines.filter((line) => line.message.startsWith('lease lost'))).toHaveLength(1)
  })

  test('a renewal that finds another holder aborts the signal', async () => {
    const observer = recordingObserver()
    const lifecycle = thingOf({ lockTimeout: '9s' })
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedBy: 'somebody#1.1' } })
        await new Promise<void>((resolve) => step.signal.addEventListener('abort', () => resolve()))
        expect(step.signal.reason.message).toBe('the step was asked to stop: lease lost')
        return step.moveTo('Created')
      }, lifecycle),
      { observer },
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.tick()
    await replica.idle()
    expect(observer.losses.map((loss) => loss.how)).toEqual(['renewal', 'refused'])
    expect((await read())['phase']).toBe('Creating')
  })

  test('poison: claimed ten times without a recorded outcome, parked with that reason', async () => {
    let ran = 0
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        ran += 1
        return step.moveTo('Created')
      }),
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', progress: { claims: 10 } })
    await replica.runOnce()
    expect(ran).toBe(0)
    const doc = await read()
    expect(doc['lockedAt'].getUTCFullYear()).toBe(9999)
    expect(doc['progress'].error.message).toMatch(/^claimed 10 times without a recorded outcome/)
  })
})
