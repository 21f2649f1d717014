import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { Timestamp } from 'mongodb'
import type { BrokenDocument } from '../../src/index.js'
import { MissedIds } from '../../src/lock/claim/claim-commands.js'
import { PARKED_AT, TASK_LOCK_INIT_TIME } from '../../src/lock/index.js'
import { checkStuck } from '../../src/operations/check/check-documents.js'
import { useDatabase } from '../support/database.js'
import { amidRebuild } from '../support/index-rebuild.js'
import { replicaOf, thing, thingOf, things, thingWith } from '../support/thing.js'
import { lockedCollection, PHASE, TERMS } from './fixture.js'

/** In this order, which no object of JavaScript's has. */
const reordered = (n: unknown) =>
  new Map<string, unknown>([
    ['b', n],
    ['1', 2],
  ])
const nested = (n: unknown) => new Map<string, unknown>([['of', [0, reordered(n)]]])

/** More than one command names. */
const MANY = 120

describe('an _id whose fields JavaScript reorders', () => {
  const database = useDatabase()
  const put = (...documents: Document[]) => things(database.db).insertMany(documents as never)
  const phases = {
    Creating: { next: ['Created', 'Deleting'] },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true, keepFor: '0s' },
  }
  const lifecycle = thingOf({ phases, renamed: { Old: 'Created' } })

  function replica() {
    const events: BrokenDocument[] = []
    const observer = { broken: (event: BrokenDocument) => void events.push(event) }
    const handled = thingWith(async (_doc, step) => step.moveTo('Created'), lifecycle)
    return { one: replicaOf(database.db, handled, { observer }), events }
  }

  test.each([
    ['at the top', reordered],
    ['deep in it', nested],
  ])('%s: put aside and told, in bounded time; its neighbours are done', async (_name, idOf) => {
    await put(...Array.from({ length: 30 }, (_, n) => ({ _id: idOf(n), phase: 'Creating' })), {
      _id: 'good',
      phase: 'Creating',
    })
    const { one, events } = replica()
    await one.runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Creating', lockedAt: PARKED_AT })).toBe(30)
    expect(events.filter(({ reason, fate }) => reason === '_id' && fate === 'putAside')).toHaveLength(30)
    expect(await things(database.db).findOne({ _id: 'good' })).toMatchObject({ phase: 'Created' })
  })

  test.each([
    ['at the top', reordered],
    ['deep in it', nested],
  ])('%s: rules, renames and removals reach it', async (_name, idOf) => {
    await put(
      ...Array.from({ length: MANY }, (_, n) => ({ _id: idOf(`final${n}`), phase: 'Deleted' })),
      ...Array.from({ length: MANY }, (_, n) => ({ _id: idOf(`old${n}`), phase: 'Old' })),
      ...Array.from({ length: MANY }, (_, n) => ({ _id: idOf(`ruled${n}`), phase: 'Created', state: 'Deleted' })),
    )
    await replica().one.runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(MANY)
    // A handler would have to run here: put aside.
    expect(await things(database.db).countDocuments({ phase: 'Deleting', lockedAt: PARKED_AT })).toBe(MANY)
    expect(await things(database.db).countDocuments()).toBe(2 * MANY)
  })

  test.each([
    ['at the top', reordered],
    ['deep in it', nested],
  ])('%s: a lockedAt that never comes due is mended, and told so only then', async (_name, idOf) => {
    await put({ _id: idOf(1), phase: 'Creating', lockedAt: new Timestamp({ t: 1, i: 1 }) })
    const { one, events } = replica()
    await one.runOnce()
    expect(events.map(({ reason, fate }) => [reason, fate])).toEqual([
      ['lockedAt', 'mended'],
      ['_id', 'putAside'],
    ])
    await put({ _id: idOf(2), phase: 'Creating', lockedAt: new Timestamp({ t: 1, i: 1 }) })
    await checkStuck({ db: database.db, models: [thing.model], termsOf: () => one.terms(thing.model), repair: true })
    expect(await things(database.db).countDocuments({ lockedAt: TASK_LOCK_INIT_TIME })).toBe(1)
  })

  test('it is put aside while the claim index is rebuilt', async () => {
    const collection = await lockedCollection(database.db)
    await collection.insertOne({ _id: reordered(1) as never, phase: PHASE })
    await amidRebuild(collection)
    const missed = new MissedIds(collection)
    expect(await missed.quarantine(TERMS, PHASE, [{ 1: 2, b: 1 }])).toEqual([{ 1: 2, b: 1 }])
    expect(await collection.countDocuments({ lockedAt: PARKED_AT })).toBe(1)
  })

  test('a twin with the same fields in another order is another document, whatever becomes of the first', async () => {
    const collection = await lockedCollection(database.db)
    const twins = [
      { b: 2, a: 1 },
      { 1: 2, b: 1 },
    ] as const
    await collection.insertMany(twins.map((_id) => ({ _id: _id as never, phase: PHASE })))
    const missed = new MissedIds(collection)
    // Missed again and again, and gone by now: others were quicker.
    for (const id of [
      { a: 1, b: 2 },
      { 1: 2, b: 1 },
    ])
      for (let times = 0; times < 6; times += 1) expect(await missed.quarantine(TERMS, PHASE, [id])).toEqual([])
    expect(await collection.countDocuments({ lockedAt: PARKED_AT })).toBe(0)
  })
})
