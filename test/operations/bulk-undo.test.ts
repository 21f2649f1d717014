import { describe, expect, test } from '@jest/globals'
import { BSON, type Document, Double, Long } from 'mongodb'
import { operationWrites, termsOf } from '../../src/lock/index.js'
import { beforeOf } from '../../src/lock/move/operation-writes.js'
import { undoOperation } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { BulkWorld, many, PARKED } from './bulk-world.js'

describe('what happens to documents beside an operation that is undone', () => {
  const database = useDatabase()
  const terms = termsOf(30_000)
  const things = () => database.db.collection<Document & { _id: string }>('Thing')
  const stored = () => things().findOne({ _id: 'a' }) as Promise<Record<string, any>>
  const operating = (operation: string) => ({ operation, by: 'ana', where: {} })
  type Write = readonly [filter: object, update: object[]]
  const write = async ([filter, update]: Write) =>
    (await things().updateOne(filter as never, update as never)).matchedCount

  /** The operation has read the document as it was, and acts on it; `between` happens first. */
  async function acted(
    how: 'unpark' | 'migrate' | 'redo',
    document: Document,
    between: () => unknown = () => undefined,
  ) {
    await things().insertOne({ _id: 'a', phase: 'Creating', ...document })
    const before = beforeOf(await stored(), terms, [])
    await between()
    const options = { phase: 'Deleting', step: undefined, set: {} }
    const by = {
      unpark: () => operationWrites.unpark(terms, 'a', operating('o-1')),
      redo: () => operationWrites.redo(terms, 'a', operating('o-1'), options),
      migrate: () => operationWrites.migrate(terms, 'a', operating('o-1'), 'Deleting'),
    }
    expect(await write(by[how]() as Write)).toBe(1)
    const [phase, wakes] = [how === 'unpark' ? 'Creating' : 'Deleting', how !== 'migrate']
    const put = { of: 'o-1', before, set: {}, phase, wakes }
    return () => write(operationWrites.putBack(terms, 'a', operating('undo-o-1'), put) as Write)
  }

  const entry = (seq: number) => ({ seq, callback: 'onMoved', at: new Date(), from: 'Created', to: 'Creating' })
  const outbox = { seq: 1, open: [entry(1)], next: 'onMoved', dueAt: new Date(0) }

  test.each(['unpark', 'redo', 'migrate'] as const)(
    '%s: what callbacks were told meanwhile is not told again',
    async (how) => {
      const undo = await acted(how, { ...PARKED, progress: { ...PARKED.progress, outbox } })
      await things().updateOne({ _id: 'a' }, { $set: { 'progress.outbox': { seq: 1 } } })
      expect(await undo()).toBe(1)
      expect(await stored()).toMatchObject({ phase: 'Creating', lockedAt: PARKED.lockedAt })
      expect((await stored())['progress'].outbox).toEqual({ seq: 1 })
    },
  )

  test('what a rule added for callbacks after the document was read is told, and its number not given twice', async () => {
    const undo = await acted('redo', {}, () =>
      things().updateOne({ _id: 'a' }, { $set: { phase: 'Created', 'progress.outbox': outbox } }),
    )
    expect(await undo()).toBe(1)
    expect((await stored())['progress'].outbox).toEqual(outbox)
  })

  test('who waits for the document goes on waiting', async () => {
    const waiters = [{ lifecycle: 'order', id: 'o', phases: ['Created'] }]
    const undo = await acted('unpark', PARKED)
    await things().updateOne({ _id: 'a' }, { $set: { 'progress.waiters': waiters } })
    expect(await undo()).toBe(1)
    expect((await stored())['progress'].waiters).toEqual(waiters)
  })

  test('an answer that was given after it stays, where it was', async () => {
    const question = { id: 'q', question: 'Ship it?', askedAt: new Date() }
    const answer = { questionId: 'q', option: 'yes', by: 'ben', at: new Date() }
    const undo = await acted('migrate', { lockedAt: new Date(0), progress: { question } })
    await things().updateOne({ _id: 'a' }, { $set: { 'progress.answer': answer } })
    expect(await undo()).toBe(0)
    expect(await stored()).toMatchObject({ phase: 'Deleting', progress: { answer } })
  })

  test('what was changed between a kill and the resumption is what it is put back to', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(3, { ...PARKED, n: 1 }))
    const { _id } = await w.begin('redo', { all: true }, { options: { set: { n: 2 } }, concurrency: 1 })
    const killed = w.worker(
      w.writingThings((count) => {
        if (count === 1) throw new Error('killed')
      }),
    )
    await killed.runOnce()
    await killed.stop()
    expect(await w.things.countDocuments({ n: 2 })).toBe(1)
    await w.things.updateMany({ n: 1 }, { $set: { n: 7 } })
    await database.db.collection('phaselock.operations').updateMany({}, { $set: { lockedAt: new Date(0) } })
    expect(await w.finish(_id)).toMatchObject({ condition: 'Done', counts: { done: 3 } })
    await undoOperation(w.system, _id, { by: 'ben' })
    expect(await w.finish(`undo-${_id}`)).toMatchObject({ counts: { done: 3 } })
    expect(await w.things.distinct('n')).toEqual([1, 7])
    expect(await w.things.countDocuments({ n: 7 })).toBe(2)
  })

  test('numbers come back as the types that they were; what the database refuses is told by its document', async () => {
    const w = await BulkWorld.of(database.db)
    const was = { long: Long.fromNumber(5), double: new Double(3), list: [{ n: Long.fromString('9007199254740993') }] }
    await w.things.insertMany([{ _id: Long.fromNumber(7), phase: 'Creating', ...PARKED, ...was }] as never)
    const { _id } = await w.begin('redo', { all: true }, { options: { set: { long: 'x', double: 'x', list: 'x' } } })
    await w.finish(_id)
    await w.things.createIndex({ long: 1 }, { unique: true })
    await w.things.insertOne({ _id: 'taken', phase: 'Created', long: 5 } as never)
    await undoOperation(w.system, _id, { by: 'ben' })
    expect(await w.finish(`undo-${_id}`)).toMatchObject({
      ...{ counts: { failed: 1 }, troubles: [{ what: 'failed', examples: ['7'] }] },
    })
    await w.things.deleteOne({ _id: 'taken' } as never)
    await database.db.collection('phaselock.operations').deleteOne({ _id: `undo-${_id}` as never })
    await undoOperation(w.system, _id, { by: 'ben' })
    expect(await w.finish(`undo-${_id}`)).toMatchObject({ counts: { done: 1 } })
    const [now] = await w.things.find({}, { promoteValues: false }).toArray()
    expect(BSON.EJSON.stringify(now, { relaxed: false })).toContain(
      '"long":{"$numberLong":"5"},"double":{"$numberDouble":"3.0"},"list":[{"n":{"$numberLong":"9007199254740993"}}]',
    )
  })
})
