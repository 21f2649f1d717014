import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { ObjectId } from 'mongodb'
import { Audit, InvalidOptions, lifecycleOf, OwnerClient, Replica, silentLogger } from '../../src/index.js'
import { OPERATION_LIFECYCLE } from '../../src/operations/index.js'
import {
  NotFound,
  type OperationRequest,
  Operations,
  operationLifecycle,
  Refused,
  UsageError,
} from '../../src/operations/public.js'
import { systemClock } from '../../src/time/index.js'
import { codeBlocks, readPage } from '../docs/page.js'
import { useDatabase } from '../support/database.js'
import { thing } from '../support/thing.js'
import { ASLEEP, BulkWorld, many, PARKED } from './bulk-world.js'

describe('operations that a program begins', () => {
  afterEach(() => void jest.restoreAllMocks())
  const database = useDatabase()
  const world = () => BulkWorld.of(database.db)
  const operationsOf = (more: object = {}) => new Operations({ db: database.db, lifecycles: [thing], ...more })
  const wake = (more: object = {}): OperationRequest =>
    ({ action: 'wake', selection: { lifecycle: 'thing', ...more }, by: 'ana' }) as const

  test('are previewed, begun, seen, worked on by whoever has their lifecycle, and undone', async () => {
    const w = await world()
    await w.things.insertMany([...many(30, { ...PARKED, n: 1 }), ...many(3, PARKED, 'e')])
    const operations = operationsOf()
    const request = {
      action: 'redo',
      selection: { lifecycle: 'thing', filter: { n: { $lt: 2 } }, parked: true },
      options: { set: { n: 5 } },
      by: 'ana',
      reason: 'a new truck',
    } as const
    expect(await operations.preview(request)).toMatchObject({ action: 'redo', lifecycle: 'thing', count: 30 })
    expect(await operations.list()).toEqual([])
    const { _id } = await operations.begin(request)
    expect(await operations.get(_id)).toMatchObject({
      condition: 'Waiting',
      expected: 30,
      by: 'ana',
      why: 'a new truck',
    })
    expect(await w.things.countDocuments(PARKED)).toBe(33)
    await expect(operations.previewUndo(_id)).rejects.toThrow(
      new Refused(
        `operation ${_id} has not ended: it is Waiting`,
        undefined,
        `abort it first: phaselock operations abort ${_id}`,
      ),
    )

    const ended = await w.finish(_id)
    expect(ended).toMatchObject({ condition: 'Done', counts: { seen: 30, done: 30 } })
    expect(await operations.get(_id)).toMatchObject({ condition: 'Done' })
    expect(await w.things.countDocuments({ n: 5 })).toBe(30)

    expect(await operations.previewUndo(_id)).toMatchObject({ of: { _id }, count: 30 })
    const undo = await operations.undo(_id, { by: 'ben', reason: 'the old truck' })
    expect(undo).toMatchObject({ _id: `undo-${_id}`, by: 'ben', why: 'the old truck', expected: 30 })
    await expect(operations.undo(_id, { by: 'ben' })).rejects.toThrow(Refused)
    expect(await operations.list({ open: true })).toMatchObject([{ _id: undo._id }])
    expect(await operations.list({ limit: 1 })).toMatchObject([{ _id: undo._id }])
    expect((await operations.list()).map((one) => one._id)).toEqual([undo._id, _id])
    await w.finish(undo._id)
    expect(await w.things.countDocuments({ n: 1, lockedAt: PARKED.lockedAt })).toBe(30)
  })

  test('with an id is begun once, however often it is asked for', async () => {
    const w = await world()
    await w.things.insertMany(many(3, ASLEEP))
    const operations = operationsOf()
    const request = { ...wake({ all: true }), id: 'p7-is-back' }
    const asked = await Promise.allSettled([1, 2, 3].map(() => operations.begin(request)))
    expect(asked.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    expect(await operations.list()).toMatchObject([{ _id: 'p7-is-back', expected: 3 }])
    await w.finish('p7-is-back')
    await w.things.deleteMany({})
    await expect(operations.begin(request)).rejects.toThrow(/^operation p7-is-back exists already/)
    await expect(operations.begin({ ...request, id: '-x' })).rejects.toThrow(
      "id: expected a letter or digit, then up to 99 more, '.', '_' or '-', got '-x'",
    )
  })

  test('leave who and why in the audit where it is kept, and nothing where it is not', async () => {
    const w = await world()
    await w.things.insertMany(many(3, ASLEEP))
    const silent = await operationsOf().begin(wake({ all: true }))
    await operationsOf().abort(silent._id, { by: 'ana' })
    expect(await new Audit(database.db).list()).toEqual([])

    const operations = operationsOf({ audit: true })
    const { _id } = await operations.begin({ ...wake({ all: true }), reason: 'rain' })
    expect(await operations.abort(_id, { by: 'ben', reason: 'sun' })).toMatchObject({ _id, counts: { seen: 0 } })
    await w.finish(_id)
    await expect(operations.abort(_id, { by: 'cem' })).rejects.toThrow('has ended already: it is Aborted')
    expect(await new Audit(database.db).list()).toMatchObject([
      { action: 'operations abort', by: 'ben', why: 'sun', target: `operation ${_id}`, outcome: 'done' },
      { action: 'operations run wake', by: 'ana', why: 'rain', target: `operation ${_id}`, outcome: 'done' },
    ])
  })

  test.each([
    ['once', 0, 1],
    ['again when it is stored, after an insert that took long', 41, 2],
  ])("are worked on by the app's own replica, which is rung for %s", async (_how, tookMs, expected) => {
    const order = lifecycleOf<{ _id: string; printer: string }>().define({
      name: 'order',
      collection: 'Order',
      phases: { Packing: { next: ['Sent'] }, Sent: { rest: true } },
    })
    const { db } = database
    const orders = order.handle({
      Packing: async (doc, step) => (doc.printer === 'p8' ? step.moveTo('Sent') : step.park('no tape')),
    })
    const replica = new Replica({ db, lifecycles: [orders, operationLifecycle({ db })], logger: silentLogger })
    try {
      // Somebody listens.
      await db.createCollection('phaselock.doorbell', { capped: true, size: 65_536 })
      await db.collection('phaselock.doorbell').insertOne({ lifecycles: [] })
      await replica.prepare()
      await new OwnerClient(db, order.model).insertMany([
        { _id: 'a', printer: 'p7' },
        { _id: 'b', printer: 'p7' },
      ] as never)
      await replica.runOnce()
      const time = jest.spyOn(systemClock, 'monotonicMs')
      // However long it takes on this machine: by the clock each reading is so much later.
      let nowMs = systemClock.monotonicMs()
      time.mockImplementation(() => (nowMs += tookMs))
      const operations = new Operations({ db, lifecycles: [order] })
      const request = {
        action: 'redo',
        selection: { lifecycle: 'order', filter: { printer: 'p7' }, parked: true },
        options: { set: { printer: 'p8' } },
        by: 'ana',
        reason: 'p7 is broken',
      } as const
      const { count, examples, radius } = await operations.preview(request)
      const { _id } = await operations.begin(request)
      time.mockRestore()
      expect([count, examples.map(({ document }) => document['_id'])]).toEqual([2, ['a', 'b']])
      expect(radius.done).toEqual({ n: 2 })
      expect(await db.collection('phaselock.doorbell').countDocuments({ lifecycles: OPERATION_LIFECYCLE })).toBe(
        expected,
      )
      await replica.runOnce()
      await replica.runOnce()
      const found = await operations.get(_id)
      expect(found).toMatchObject({ condition: 'Done', counts: { done: 2 } })
      expect(await db.collection('Order').countDocuments({ phase: 'Sent' })).toBe(2)
    } finally {
      await replica.stop()
    }
  })

  test('of a lifecycle that no replica has registered are parked, and say so', async () => {
    const w = new BulkWorld(database.db)
    await w.things.insertMany(many(3, ASLEEP))
    // The same list as a replica's.
    const lifecycles = [thing, operationLifecycle({ db: database.db })]
    const operations = operationsOf({ lifecycles })
    const { _id } = await operations.begin(wake({ all: true }))
    expect(await w.finish(_id)).toMatchObject({
      condition: 'Parked',
      problem: expect.stringContaining('no replica has registered the lifecycle thing in this database'),
    })
    await expect(operations.begin(wake({ lifecycle: OPERATION_LIFECYCLE, all: true }))).rejects.toThrow(
      'expected a lifecycle other than that of operations',
    )
  })

  test("are begun as the page shows it: its code is this file's", async () => {
    const squeezed = (text: string) => text.replace(/\s+/g, ' ').trim()
    const here = squeezed(await readPage('test/operations/program.test.ts'))
    const shown = codeBlocks(await readPage('docs/bulk-operations.md')).filter(
      ({ heading, language }) => heading === 'From a program' && language === 'ts',
    )
    const parts = shown.flatMap(({ code }) => code.split('\n\n')).filter((part) => !part.startsWith('import '))
    expect(parts).toHaveLength(2)
    for (const part of parts) expect(here).toContain(squeezed(part.replace(/ \/\/ .*$/, '')))
  })

  test('say what they expected', async () => {
    const w = await world()
    await w.things.insertMany(many(3, ASLEEP))
    const { db } = database
    const made: [unknown, string][] = [
      [undefined, 'new Operations: expected an object, got undefined'],
      [{ lifecycles: [thing] }, "db: expected a database from the driver (client.db('shop')), got undefined"],
      [{ db }, 'lifecycles: expected a list of lifecycles, got undefined'],
      [{ db, lifecycles: [] }, 'lifecycles: expected a list of lifecycles, got an empty one'],
      [
        { db, lifecycles: ['thing'] },
        "lifecycles.0: expected a lifecycle (`lifecycleOf().define({ ... })`, with its handlers or without), got 'thing'",
      ],
      [{ db, lifecycles: [null] }, 'lifecycles.0: expected a lifecycle'],
      [
        { db, lifecycles: [thing], doorbel: 'off' },
        "unknown option 'doorbel' (did you mean 'doorbell'?); known: db, lifecycles, doorbell, audit",
      ],
      [{ db, lifecycles: [thing], audit: { by: 'ana' } }, 'audit: expected true or false, got an object with by'],
    ]
    for (const [options, problem] of made) {
      const make = () => new Operations(options as never)
      expect(make).toThrow(InvalidOptions)
      expect(make).toThrow(problem)
    }
    const operations = operationsOf()
    const all = wake({ all: true })
    const mistakes: [unknown, abstract new (...given: never[]) => Error, string][] = [
      [undefined, InvalidOptions, 'operations.begin: expected an object, got undefined'],
      [{ ...all, by: undefined }, InvalidOptions, 'by: expected a string, got undefined'],
      [{ ...all, by: '' }, InvalidOptions, 'by: expected a name, got an empty string'],
      [{ ...all, by: 'x'.repeat(201) }, InvalidOptions, 'by: expected at most 200 characters'],
      [
        { ...all, action: 'wkae' },
        InvalidOptions,
        "action: expected one of wake, unpark, set-state, redo, migrate, pause, resume, cancel, remove, got 'wkae'",
      ],
      [{ ...all, action: 'undo' }, InvalidOptions, 'action: expected one of'],
      [{ ...all, selection: undefined }, InvalidOptions, 'selection: expected an object, got undefined'],
      [
        wake({ lifecycle: 'thong', all: true }),
        InvalidOptions,
        "selection.lifecycle: expected one of thing, got 'thong'",
      ],
      [wake({ lifecycle: { $ne: 1 }, all: true }), InvalidOptions, 'selection.lifecycle: expected one of thing'],
      [wake({ fitler: {} }), InvalidOptions, "unknown option 'selection.fitler'"],
      [wake({ filter: '{"n":1}' }), InvalidOptions, `selection.filter: expected a filter of MongoDB, got '{"n":1}'`],
      [
        wake({ filter: new ObjectId() }),
        InvalidOptions,
        'selection.filter: expected a filter of MongoDB, got an ObjectId',
      ],
      [wake({ filter: [] }), InvalidOptions, 'selection.filter: expected a filter of MongoDB'],
      [wake({ phase: 5 }), InvalidOptions, 'selection.phase: expected a string, got 5'],
      [wake({ parked: 'yes' }), InvalidOptions, "selection.parked: expected true or false, got 'yes'"],
      [{ ...all, atMost: 0 }, InvalidOptions, 'atMost: expected a whole number from 1 to 100000000, got 0'],
      [{ ...all, rate: '10' }, InvalidOptions, "rate: expected a whole number from 1 to 100000, got '10'"],
      [{ ...all, atmost: 5 }, InvalidOptions, "unknown option 'atmost' (did you mean 'atMost'?)"],
      [{ ...all, options: { toState: 'x' } }, InvalidOptions, "unknown option 'options.toState'"],
      [{ ...all, options: { state: 'Deleted' } }, UsageError, "wake: unknown option 'state' (--to-state); known: none"],
      [{ ...all, action: 'set-state' }, UsageError, 'state (--to-state): expected the state to be set, got none'],
      [{ ...all, action: 'set-state', options: { state: 'Delted' } }, UsageError, 'force (--force) stores it anyway'],
      [{ ...all, action: 'migrate' }, UsageError, 'phase (--to-phase): expected where to, a phase of thing'],
      [{ ...all, action: 'redo', options: { step: '' } }, UsageError, 'step (--to-step): expected the name of a step'],
      [{ ...all, atMost: 2 }, UsageError, 'narrow the filter, or say how many there may be (atMost, or --at-most)'],
      [
        wake(),
        UsageError,
        'give filter, phase, state, parked, bugs, failing, waiting, on or cause (--filter, --phase, ...); all (--all) means all of them',
      ],
      [wake({ filter: {} }), UsageError, 'expected which documents of thing are meant, got an empty filter'],
      [wake({ all: true, parked: true }), UsageError, 'expected all (--all) or a filter, got both'],
      [wake({ filter: { $nope: 1 } }), UsageError, 'expected a filter that MongoDB can use, got'],
      [wake({ filter: { n: undefined } }), UsageError, "got one in which 'n' is undefined"],
      [wake({ filter: { f: () => true } }), UsageError, "got one in which 'f' is a function"],
      [wake({ filter: { n: 7 } }), NotFound, 'no document of thing matches: there is nothing to wake'],
    ]
    for (const [request, kind, problem] of mistakes) {
      const begun = operations.begin(request as never)
      await expect(begun).rejects.toThrow(problem)
      await expect(begun).rejects.toThrow(kind)
    }
    const calls: [(given: never) => Promise<unknown>, unknown, string][] = [
      [(id) => operations.get(id), { $gt: '' }, 'operations.get: id: expected a string, got an object with $gt'],
      [
        (id) => operations.abort(id, { by: 'ana' }),
        undefined,
        'operations.abort: id: expected a string, got undefined',
      ],
      [
        (requester) => operations.abort('wake-1', requester),
        undefined,
        'operations.abort: expected an object, got undefined',
      ],
      [
        (requester) => operations.undo('wake-1', requester),
        { why: 'x' },
        'operations.undo: by: expected a string, got undefined; expected reason, got why: it is called reason now',
      ],
      [(id) => operations.previewUndo(id), '', 'operations.previewUndo: id: expected a name, got an empty string'],
      [
        (options) => operations.list(options),
        { limit: 0 },
        'operations.list: limit: expected a whole number from 1 to 10000, got 0',
      ],
      [(options) => operations.list(options), { id: 'x' }, "operations.list: unknown option 'id'"],
      [(id) => operations.abort(id, { by: 'ana' }), 'wake-1', "there is no operation 'wake-1'"],
      [(id) => operations.undo(id, { by: 'ana' }), 'wake-1', "there is no operation 'wake-1'"],
    ]
    for (const [call, given, problem] of calls) await expect(call(given as never)).rejects.toThrow(problem)
    expect(await operations.get('wake-1')).toBeNull()
    expect(await operations.list()).toEqual([])
  })
})
