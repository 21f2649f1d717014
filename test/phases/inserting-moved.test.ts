import { describe, expect, test } from '@jest/globals'
import { OwnerClient, silentLogger } from '../../src/index.js'
import { operationWrites, renameUpdate, termsOf } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, type Thing, thing, things, thingWith } from '../support/thing.js'

/** Others than its holder let go of a document whose holder has died, in which an insert has left something. */
describe('an insert that was left for a holder that has died', () => {
  const database = useDatabase()
  const owner = () => new OwnerClient<Thing>(database.db, thing.model)
  const stored = () => things(database.db).findOne({ _id: 'a' }) as Promise<Record<string, any>>
  const terms = termsOf(30_000, { working: ['Creating', 'Deleting'] })
  const operating = { operation: 'o-1', by: 'ana', where: {} }
  type Write = [filter: object, update: object[]]
  const write = (...[filter, update]: Write) => things(database.db).updateOne(filter as never, update as never)

  /** Held by who has died, with what an insert with this option has left. */
  async function left(onDuplicate: 'replaceWaiting' | 'runAgain', phase = 'Creating') {
    const lockedAt = new Date(Date.now() - 60_000)
    await things(database.db).insertOne({ _id: 'a', phase, n: 1, lockedAt, lockedBy: 'api~5f3a9c#7.2' } as never)
    expect(await owner().insert({ _id: 'a', n: 2 }, { onDuplicate })).toEqual({ id: 'a', kind: 'queued' })
  }

  async function runs() {
    const seen: unknown[] = []
    const replica = replicaOf(
      database.db,
      thingWith(async (doc, step) => {
        seen.push(doc.n)
        return step.moveTo('Created')
      }),
      { logger: silentLogger },
    )
    await replica.runOnce()
    await replica.stop()
    return seen
  }

  const MOVES: [string, (to: string) => Write][] = [
    ['a rename', (to) => renameUpdate(terms, { from: 'Old', to }, ['a']) as Write],
    ['migrate', (to) => operationWrites.migrate(terms, 'a', operating, to) as Write],
  ]

  test.each(MOVES)('goes with %s; and a wake after that loses nothing', async (_what, moved) => {
    await left('replaceWaiting')
    await things(database.db).updateOne({ _id: 'a' }, { $set: { phase: 'Old' } })
    expect((await write(...moved('Creating'))).matchedCount).toBe(1)
    await owner().insert({ _id: 'a', n: 0 }, { onDuplicate: 'wake' })
    expect(await runs()).toEqual([2])
    expect((await stored())['progress']).not.toHaveProperty('next')
  })

  test.each(MOVES)('goes with %s to where it rests, and runs again if it was to', async (_what, moved) => {
    await left('replaceWaiting')
    await things(database.db).updateOne({ _id: 'a' }, { $set: { phase: 'Old' } })
    await write(...moved('Created'))
    expect(await stored()).toMatchObject({ phase: 'Created', n: 2 })
    expect(await runs()).toEqual([])
    await things(database.db).deleteMany({})
    await left('runAgain')
    await things(database.db).updateOne({ _id: 'a' }, { $set: { phase: 'Old' } })
    await write(...moved('Created'))
    expect(await runs()).toEqual([2])
  })

  test('a wake takes along what is there', async () => {
    const lockedAt = new Date(Date.now() + 60_000)
    const progress = { next: { set: { n: 2 }, by: 'ben' } }
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', n: 1, lockedAt, progress } as never)
    expect(await owner().insert({ _id: 'a', n: 0 }, { onDuplicate: 'wake' })).toEqual({ id: 'a', kind: 'woken' })
    expect(await runs()).toEqual([2])
  })

  test('lies under what redo sets later', async () => {
    await left('runAgain')
    await things(database.db).updateOne({ _id: 'a' }, { $set: { 'progress.next.set.effects': ['left'] } })
    const redo = { phase: undefined, step: undefined, set: { n: 3 } }
    expect((await write(...operationWrites.redo(terms, 'a', operating, redo))).matchedCount).toBe(1)
    expect(await runs()).toEqual([3])
    expect(await stored()).toMatchObject({ n: 3, effects: ['left'] })
  })

  const STATES: [string, () => Promise<unknown>][] = [
    ['its owner', () => owner().setState('a', 'Deleted')],
    ['an operation', () => write(...(operationWrites.setState(terms, 'a', operating, 'Deleted') as Write))],
  ]

  test.each(STATES)('a state that %s sets after it is not lost by the one in it', async (_what, set) => {
    const replica = replicaOf(
      database.db,
      thingWith(async (doc, step) => {
        if (doc.n !== 1) return step.moveTo('Created')
        await owner().insert({ _id: 'a', n: 3, state: 'Running' }, { onDuplicate: 'runAgain' })
        await set()
        return step.wait('rain', { for: '1h' })
      }),
      { logger: silentLogger },
    )
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', n: 1 })
    await replica.runOnce()
    await replica.runOnce()
    await replica.stop()
    expect(await things(database.db).countDocuments({ phase: { $ne: 'Deleted' } })).toBe(0)
    // The other way round the insert is the newer one.
    await things(database.db).deleteMany({})
    await left('runAgain')
    await set()
    await owner().insert({ _id: 'a', n: 3, state: 'Running' }, { onDuplicate: 'runAgain' })
    expect((await stored())['progress'].next.set).toEqual({ n: 3, state: 'Running' })
  })

  test.each([
    ['nothing of ours', {}, 'done'],
    ['that state already', { state: 'Deleted' }, 'unchanged'],
    ['a progress of its own', { progress: [{ next: 1 }] }, 'done'],
    ['a progress that is text', { progress: 'half' }, 'done'],
  ] as const)('a state is set on a document with %s', async (_what, fields, verdict) => {
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', ...fields } as never)
    expect(await owner().setState('a', 'Deleted')).toBe(verdict)
    expect(await stored()).toEqual({ _id: 'a', phase: 'Creating', ...fields, state: 'Deleted' })
  })
})
