import { describe, expect, test } from '@jest/globals'
import { lifecycleOf, type Step } from '../../src/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { backDate, gate, recordingObserver, replicaOf, ShiftedClock, things } from '../support/thing.js'

interface Doc {
  _id: string
  state?: 'Running' | 'Stopped'
  n?: number
}

const lifecycle = lifecycleOf<Doc>().define({
  name: 'thing',
  collection: 'Thing',
  // So long that a test may put a replica's clock forward to a deadline without costing it its leases.
  lockTimeout: '10m',
  phases: {
    Starting: { next: ['Started'], deadline: { after: '5m', moveTo: 'Stopping', setState: 'Stopped' } },
    Started: { rest: true, deadline: { after: '1h', moveTo: 'Stopping' } },
    Stopping: { next: ['Stopped'] },
    Stopped: { final: true, keepFor: '10m' },
  },
})

type Starting = (doc: Doc, step: Step<'Started', Doc>) => Promise<any>

const bound = (Starting: Starting) =>
  lifecycle.handle({ Starting, Stopping: async (_doc, step) => step.wait('winding down', { for: '1h' }) })

/** A document that has been Starting for so long; its deadline comes when the replica's clock is put forward by the same. */
const UNDER_WAY_MS = 160_000

describe('deadlines', () => {
  const database = useDatabase()
  const starting = () => ({ _id: 'a', phase: 'Starting', progress: { since: new Date(Date.now() - UNDER_WAY_MS) } })
  const read = () => things(database.db).findOne({ _id: 'a' }) as Promise<Record<string, any>>

  test('a waiting document goes where its deadline says, with the reason and the compensating state', async () => {
    const replica = replicaOf(
      database.db,
      bound(async (_doc, step) => step.wait('3 of 4 pods ready')),
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Starting', state: 'Running' })
    await replica.runOnce()
    await backDate(database.db, 'a', 301_000)
    await replica.runOnce()
    const doc = await read()
    expect(doc).toMatchObject({ phase: 'Stopping', state: 'Stopped' })
    const moved = doc['progress'].history.at(-2)
    expect(moved).toMatchObject({ outcome: 'deadline', from: 'Starting', to: 'Stopping' })
    expect(moved.reason).toBe('longer than 300000 ms in Starting, waiting for: 3 of 4 pods ready')
  })

  test('edits of the owner do not move a deadline: it counts from when the phase was entered', async () => {
    const replica = replicaOf(
      database.db,
      bound(async (_doc, step) => step.wait('x')),
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Starting' })
    await replica.runOnce()
    await backDate(database.db, 'a', 301_000)
    await things(database.db).updateOne({ _id: 'a' }, { $currentDate: { updatedAt: true } })
    await replica.runOnce()
    expect((await read())['phase']).toBe('Stopping')
  })

  test('a sleep ends at the deadline at the latest', async () => {
    const replica = replicaOf(
      database.db,
      bound(async (_doc, step) => step.wait('x', { for: '2h' })),
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Starting' })
    await replica.runOnce()
    const { progress } = await read()
    expect(progress.resumeAt.getTime()).toBe(progress.since.getTime() + 300_000)
  })

  test('an owner who has changed the state meanwhile keeps it: the compensation is only written over what it saw', async () => {
    const clock = new ShiftedClock()
    const replica = replicaOf(
      database.db,
      bound(async (_doc, step) => {
        clock.advance(UNDER_WAY_MS)
        await new Promise<void>((resolve) => step.signal.addEventListener('abort', () => resolve()))
        await things(database.db).updateOne({ _id: 'a' }, { $set: { state: 'Running' } })
        throw step.signal.reason
      }),
      { clock },
    )
    await replica.prepare()
    await things(database.db).insertOne(starting())
    await replica.runOnce()
    expect(await read()).toMatchObject({ phase: 'Stopping', state: 'Running' })
  })

  test('a resting document sleeps until its deadline, also one that was written into the phase by hand', async () => {
    const replica = replicaOf(
      database.db,
      bound(async (_doc, step) => step.moveTo('Started')),
    )
    await things(database.db).insertMany([
      { _id: 'a', phase: 'Starting' },
      { _id: 'b', phase: 'Started' },
    ])
    await replica.runOnce()
    for (const id of ['a', 'b']) {
      const doc = (await things(database.db).findOne({ _id: id })) as Record<string, any>
      expect(doc['phase']).toBe('Started')
      expect(doc['lockedBy']).toBeUndefined()
      expect(doc['progress'].resumeAt.getTime()).toBe(doc['progress'].since.getTime() + 3_600_000)
      await backDate(database.db, id, 3_601_000)
    }
    await replica.runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Stopping' })).toBe(2)
  })

  test('a running step is asked to stop at the deadline, and the move is written under its own token', async () => {
    const observer = recordingObserver()
    const entered = gate()
    const clock = new ShiftedClock()
    const replica = replicaOf(
      database.db,
      bound(async (_doc, step) => {
        entered.open()
        clock.advance(UNDER_WAY_MS)
        await new Promise((_resolve, reject) => step.signal.addEventListener('abort', () => reject(step.signal.reason)))
      }),
      { observer, clock },
    )
    await things(database.db).insertOne(starting())
    const round = replica.runOnce()
    await entered.wait
    await round
    expect(observer.steps[0]).toMatchObject({ outcome: 'deadline', to: 'Stopping' })
    expect(observer.losses).toEqual([])
  })

  test('a step that finishes by moving on, though asked to stop, has finished', async () => {
    const clock = new ShiftedClock()
    const replica = replicaOf(
      database.db,
      bound(async (_doc, step) => {
        clock.advance(UNDER_WAY_MS)
        await new Promise<void>((resolve) => step.signal.addEventListener('abort', () => resolve()))
        return step.moveTo('Started')
      }),
      { clock },
    )
    await things(database.db).insertOne(starting())
    await replica.runOnce()
    expect((await read())['phase']).toBe('Started')
  })

  test('a final document is kept for keepFor, then removed, also one that was written into the phase by hand', async () => {
    const replica = replicaOf(
      database.db,
      bound(async (_doc, step) => step.moveTo('Started')),
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Stopped' })
    await replica.runOnce()
    expect((await read())['progress'].resumeAt).toBeInstanceOf(Date)
    await backDate(database.db, 'a', 400_000)
    await replica.runOnce()
    expect(await read()).not.toBeNull()
    await backDate(database.db, 'a', 201_000)
    await eventually(async () => {
      await replica.runOnce()
      expect(await read()).toBeNull()
    })
  })
})
