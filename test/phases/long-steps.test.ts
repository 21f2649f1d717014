import { describe, expect, test } from '@jest/globals'
import { LeaseLost } from '../../src/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate, recordingLogger, recordingObserver, replicaOf, thingOf, things, thingWith } from '../support/thing.js'

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
