import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { type BrokenDocument } from '../../src/index.js'
import { PARKED_AT } from '../../src/lock/index.js'
import { explain } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { backDate, recordingLogger, replicaOf, thingOf, things, thingWith } from '../support/thing.js'

const MANY = 1_000
const phases = {
  Creating: { next: ['Created', 'Deleting'], deadline: { after: '1h', moveTo: 'Deleting', setState: 'Deleted' } },
  Created: { rest: true },
  Deleting: { next: ['Deleted'], deadline: { after: '1h', moveTo: 'Deleted' } },
  Deleted: { final: true, keepFor: '0s' },
}
const lifecycle = thingOf({ phases, renamed: { Old: 'Created' } })

describe('a state or a phase that is no text', () => {
  const database = useDatabase()
  const read = async (id: unknown) => (await things(database.db).findOne({ _id: id as never })) as Document

  function replica(handler = async (_doc: unknown, step: any) => step.moveTo('Created')) {
    const events: BrokenDocument[] = []
    const logger = recordingLogger()
    const observer = { broken: (event: BrokenDocument) => void events.push(event) }
    return { one: replicaOf(database.db, thingWith(handler as never, lifecycle), { logger, observer }), events, logger }
  }
  const put = (...documents: Document[]) => things(database.db).insertMany(documents as never)

  test.each([
    ['an array of the rule’s', ['Deleted']],
    ['an array with it among others', ['Running', 'Deleted']],
    ['a nested array', [['Deleted']]],
    ['an object', { Deleted: true }],
    ['a number', 1],
  ])('a state that is %s matches no rule: nothing is moved or removed', async (_name, state) => {
    await put({ _id: 'a', phase: 'Created', state }, { _id: 'b', phase: 'Creating', state })
    await put({ _id: 'good', phase: 'Created', state: 'Deleted' })
    await replica().one.runOnce()
    expect(await read('a')).toEqual({ _id: 'a', phase: 'Created', state })
    expect(await read('b')).toMatchObject({ phase: 'Created', state })
    expect(await read('good')).toBeNull()
    const said = explain(await read('a'), lifecycle.model, new Date(), 30_000)
    expect(said).toMatch(/^Rests in Created \(its state is an? .*, which counts as none: expected a string\)/)
  })

  test('a thousand in front of a good one: it is moved, and renamed', async () => {
    await put(...Array.from({ length: MANY }, (_, i) => ({ _id: `a${i}`, phase: 'Created', state: ['Deleted'] })))
    await put(...Array.from({ length: MANY }, (_, i) => ({ _id: `b${i}`, phase: ['Created'], state: 'Deleted' })))
    await put(...Array.from({ length: MANY }, (_, i) => ({ _id: `c${i}`, phase: ['Old'] })))
    await put({ _id: 'ruled', phase: 'Created', state: 'Deleted' }, { _id: 'renamed', phase: 'Old' })
    await replica().one.runOnce()
    expect(await read('ruled')).toBeNull()
    expect(await read('renamed')).toMatchObject({ phase: 'Created' })
    expect(await things(database.db).countDocuments()).toBe(3 * MANY + 1)
  })

  test('a deadline moves on, and leaves the state as its owner wrote it', async () => {
    for (const [i, state] of [['Running'], { a: 1 }, 5].entries()) {
      const _id = `d${i}`
      await put({ _id, phase: 'Creating', state })
      await replica(async (_doc: unknown, step: any) => step.wait('x', { for: '1s' })).one.runOnce()
      await backDate(database.db, _id, 7_200_000)
      // Stays in Deleting.
      const two = replicaOf(
        database.db,
        lifecycle.handle({ Creating: async (_d, s) => s.wait('x'), Deleting: async (_d, s) => s.park('look') }),
      )
      await two.runOnce()
      expect(await read(_id)).toMatchObject({ phase: 'Deleting', state })
    }
  })

  test('unpark leaves a document alone whose progress or phase is an array', async () => {
    const bad = [
      { _id: 'progress', phase: 'Creating', lockedAt: PARKED_AT, progress: [{ a: 1 }] },
      { _id: 'phase', phase: ['Creating'], lockedAt: PARKED_AT, progress: {} },
    ]
    await put(...bad)
    const owner = lifecycle
      .handle({ Creating: async (_d, s) => s.wait('x'), Deleting: async (_d, s) => s.wait('x') })
      .attach(database.db)
      .owner()
    for (const { _id } of bad) expect(await owner.unpark(_id)).toBe('parked')
    expect(await things(database.db).find().toArray()).toEqual(bad)
  })

  describe('a final document that is put aside', () => {
    const bad = (n = 1) =>
      Array.from({ length: n }, (_, i) => [
        { _id: `phase${i}`, phase: ['Deleted', 'x'], own: 1 },
        { _id: `progress${i}`, phase: 'Deleted', progress: 'mine', updatedAt: new Date(0) },
        { _id: `list${i}`, phase: 'Deleted', progress: [{ a: 1 }], updatedAt: new Date(0) },
      ]).flat() as Document[]

    test.each(['0s', '1h'])('is told of like any other, and shown (keepFor %s)', async (keepFor) => {
      await put(...bad())
      const kept = thingOf({ phases: { ...phases, Deleted: { final: true, keepFor } } })
      const events: BrokenDocument[] = []
      const logger = recordingLogger()
      const observer = { broken: (event: BrokenDocument) => void events.push(event) }
      const one = replicaOf(
        database.db,
        thingWith(async (_d, s) => s.again(), kept),
        { logger, observer },
      )
      await one.runOnce()
      await one.runOnce()
      for (const document of bad()) expect(await read(document['_id'])).toEqual({ ...document, lockedAt: PARKED_AT })
      expect(events.map(({ id, reason, fate }) => [id, reason, fate]).sort()).toEqual([
        ['list0', 'progress', 'putAside'],
        ['phase0', 'phase', 'putAside'],
        ['progress0', 'progress', 'putAside'],
      ])
      expect(logger.lines.filter(({ message }) => message.includes('put aside'))).toHaveLength(3)
    })

    test('a thousand in front of a good one: all are told of, the good one is removed', async () => {
      await put(...bad(MANY), { _id: 'good', phase: 'Deleted', updatedAt: new Date() })
      const { one, events } = replica()
      await one.runOnce()
      expect(await read('good')).toBeNull()
      expect(events.filter(({ fate }) => fate === 'putAside')).toHaveLength(3 * MANY)
      expect(await things(database.db).countDocuments({ lockedAt: PARKED_AT })).toBe(3 * MANY)
    })
  })
})
