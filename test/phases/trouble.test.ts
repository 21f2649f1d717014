import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { lifecycleOf, troubleOf } from '../../src/phases/index.js'
import { useDatabase } from '../support/database.js'
import { backDate, recordingLogger, replicaOf, type Thing, thingSpec, things, thingWith } from '../support/thing.js'

type AnyHandler = (doc: any, step: any) => unknown
const CAUSE = /^[0-9a-f]{12}$/

describe("the cause of a document's trouble", () => {
  const database = useDatabase()
  const spec = (more: object = {}) => lifecycleOf<Thing>().define({ ...thingSpec, ...more } as typeof thingSpec)
  const read = async (_id: string) => (await things(database.db).findOne({ _id })) as Document

  /** Runs these documents once, and returns what was logged. */
  async function run(handler: AnyHandler, ids: readonly string[], lifecycle = spec()) {
    await things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating' })))
    const logger = recordingLogger()
    const replica = replicaOf(database.db, thingWith(handler as never, lifecycle), { logger })
    await replica.runOnce()
    await replica.stop()
    return logger
  }

  test('errors that differ in their values have one cause, which is stored; another error has another', async () => {
    await run(
      ({ _id }) => {
        if (_id === 'other') throw new TypeError('x is not a function')
        throw Object.assign(new Error(`connect ECONNREFUSED 10.0.0.${_id.length}:443`), { code: 'ECONNREFUSED' })
      },
      ['one', 'three', 'other'],
    )
    const [one, three, other] = await Promise.all(['one', 'three', 'other'].map(read))
    expect(one!['progress'].error.cause).toMatch(CAUSE)
    expect(three!['progress'].error.cause).toBe(one!['progress'].error.cause)
    expect(other!['progress'].error.cause).not.toBe(one!['progress'].error.cause)
    expect(troubleOf(one!, spec().model)).toEqual({
      cause: one!['progress'].error.cause,
      kind: 'error',
      text: 'connect ECONNREFUSED #',
    })
  })

  test('a document of an older version, without a stored cause, has the same', async () => {
    await run(
      ({ _id }) => {
        throw new Error(`no such order ${_id}: it was removed at 2026-11-26T18:00:00Z`, { cause: new Error('gone 17') })
      },
      ['alice'],
    )
    const found = await read('alice')
    const { cause, ...older } = found['progress'].error
    const trouble = troubleOf({ ...found, progress: { ...found['progress'], error: older } }, spec().model)
    expect(trouble).toEqual({ cause, kind: 'error', text: 'no such order #: it was removed at # (Error: gone #)' })
  })

  test('reasons to park have causes, with and without an error of their own', async () => {
    const handler: AnyHandler = ({ _id }, step) => {
      if (_id.startsWith('broken')) throw new Error(`row ${_id} is broken`)
      return step.park(`order ${_id.length} needs a person`)
    }
    await run(handler, ['asks', 'asks-too', 'broken-1'], spec({ maxAttempts: 1 }))
    const [asks, too, broken] = await Promise.all(['asks', 'asks-too', 'broken-1'].map(read))
    const [first, second, last] = [asks, too, broken].map((one) => troubleOf(one!, spec().model)!)
    expect(first).toMatchObject({ kind: 'park', text: 'order # needs a person', cause: asks!['progress'].error.cause })
    expect(second!.cause).toBe(first!.cause)
    // Parked for too many errors: the cause is that of the errors.
    expect(last).toMatchObject({ kind: 'park', text: 'row # is broken' })
    const again = await runOnceMore('broken-2', handler)
    expect(again).toMatchObject({ kind: 'error', cause: last!.cause })
  })

  async function runOnceMore(id: string, handler: AnyHandler) {
    await run(handler, [id])
    return troubleOf(await read(id), spec().model)
  }

  test('what has no trouble has none; parked by hand without a reason is a trouble of its own', async () => {
    await run((_doc, step) => step.wait('a van'), ['fine'])
    const fine = await read('fine')
    expect(troubleOf(fine, spec().model)).toBeUndefined()
    const parked = { ...fine, lockedAt: new Date('9999-12-31T00:00:00Z') }
    expect(troubleOf(parked, spec().model)).toMatchObject({ kind: 'park', text: 'no reason is stored' })
    for (const error of ['text', 5, [], { name: 5, message: {}, stack: [], causes: [null, 5, { code: {} }] }])
      expect(troubleOf({ ...parked, progress: { error } }, spec().model)?.cause).toMatch(CAUSE)
    expect(troubleOf({ progress: { error: { cause: '<script>', message: 'x' } } }, spec().model)?.cause).toMatch(CAUSE)
  })

  test('the field of the progress is the one that the lifecycle names', async () => {
    const lifecycle = spec({ fields: { progress: 'task' } })
    await run(
      () => {
        throw new Error('no')
      },
      ['a'],
      lifecycle,
    )
    const found = await read('a')
    expect(troubleOf(found, lifecycle.model)?.cause).toBe(found['task'].error.cause)
  })

  test('causeOf names the cause; undefined leaves it to Phaselock', async () => {
    const causeOf = (error: unknown) => (error instanceof RangeError ? 'the quota' : undefined)
    const handler: AnyHandler = ({ _id }) => {
      if (_id === 'plain') throw new Error('one thing')
      throw new RangeError(_id)
    }
    const logger = await run(handler, ['first', 'second', 'plain'], spec({ causeOf }))
    const [first, second, plain] = await Promise.all(['first', 'second', 'plain'].map(read))
    expect(first!['progress'].error.cause).toMatch(CAUSE)
    expect(second!['progress'].error.cause).toBe(first!['progress'].error.cause)
    const { cause, ...older } = plain!['progress'].error
    expect(troubleOf({ progress: { error: older } }, spec().model)?.cause).toBe(cause)
    expect(logger.lines.filter(({ message }) => message.includes('causeOf'))).toEqual([])
  })

  test.each<[string, (error: unknown) => unknown]>([
    [
      'throws',
      () => {
        throw new Error('my own bug')
      },
    ],
    ['returns a number', () => 5],
    ['returns an empty name', () => ''],
    ['returns a name that is too long', () => 'x'.repeat(201)],
    ['returns a promise that is rejected', () => Promise.reject(new Error('async'))],
  ])('a causeOf that %s: the usual cause is taken, and that is reported once', async (_what, causeOf) => {
    const handler: AnyHandler = ({ _id }) => {
      throw new Error(`no ${_id}`)
    }
    const logger = await run(handler, ['one', 'two'], spec({ causeOf }))
    for (const id of ['one', 'two']) {
      const { cause, ...older } = (await read(id))['progress'].error
      expect(troubleOf({ _id: id, progress: { error: older } }, spec().model)?.cause).toBe(cause)
    }
    expect(logger.lines.filter(({ message }) => message.includes('causeOf'))).toHaveLength(1)
  })

  test('a causeOf that is no function is refused', () => {
    expect(() => spec({ causeOf: 'code' })).toThrow(/causeOf: expected a function/)
  })

  test('a cause that is over leaves nothing behind', async () => {
    let fails = true
    const handler: AnyHandler = (_doc, step) => {
      if (fails) throw new Error('no')
      return step.wait('a van')
    }
    await run(handler, ['a'])
    fails = false
    await backDate(database.db, 'a', 600_000)
    const replica = replicaOf(database.db, thingWith(handler as never, spec()))
    await replica.runOnce()
    await replica.stop()
    expect((await read('a'))['progress'].error).toBeUndefined()
  })
})
