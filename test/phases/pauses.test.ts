import { afterEach, describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import type { Replica, ReplicaOptions, RunnableLifecycle } from '../../src/index.js'
import { LIFECYCLES_COLLECTION, MOST_PAUSES } from '../../src/lock/index.js'
import { type PauseRequest, type PauseScope, pauseWork, resumeWork } from '../../src/operations/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { backDate, gate, recordingLogger, replicaOf, thing, thingOf, things, thingWith } from '../support/thing.js'

describe('a pause', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  // After that, so that it goes last.
  const database = useDatabase()

  const straight = () => thingWith(async (_doc, step) => step.moveTo('Created'))
  const system = () => ({ db: database.db, models: [thing.model] })
  const pause = (request: Partial<PauseRequest> = {}) =>
    pauseWork(system(), { lifecycle: 'thing', by: 'ana', ...request })
  const resume = (scope: PauseScope = {}) => resumeWork(system(), { lifecycle: 'thing', ...scope })
  const entries = () => database.db.collection<Document & { _id: string }>(LIFECYCLES_COLLECTION)
  const phases = async () =>
    Object.fromEntries((await things(database.db).find().toArray()).map(({ _id, phase }) => [_id, phase]))
  const insert = (ids: readonly string[], more: Document = {}) =>
    things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating', ...more })))

  async function prepared(lifecycle: RunnableLifecycle = straight(), options: Partial<ReplicaOptions> = {}) {
    const logger = recordingLogger()
    const replica = replicaOf(database.db, lifecycle, { logger, ...options })
    replicas.push(replica)
    await replica.prepare()
    return { replica, logger }
  }

  test('of a lifecycle: nothing of it is claimed, moved or removed, on no replica, nor after a restart; then all goes on', async () => {
    const { replica, logger } = await prepared()
    await pause({ reason: 'the warehouse is moving' })
    await insert(['a', 'b'])
    await insert(['deleted'], { phase: 'Created', state: 'Deleted' })
    await insert(['final'], { phase: 'Deleted' })
    expect(await replica.runOnce()).toEqual({ ruled: 0, removed: 0, due: 0 })
    const { replica: other } = await prepared()
    expect(await other.runOnce()).toEqual({ ruled: 0, removed: 0, due: 0 })
    expect(await phases()).toEqual({ a: 'Creating', b: 'Creating', deleted: 'Created', final: 'Deleted' })
    expect(await things(database.db).countDocuments({ fence: { $exists: true } })).toBe(0)
    expect(replica.status()).toMatchObject({
      notReady: [],
      paused: [{ lifecycle: 'thing', what: 'lifecycle', text: 'thing: paused by ana: the warehouse is moving' }],
    })
    await resume()
    await replica.runOnce()
    expect(await phases()).toEqual({ a: 'Created', b: 'Created' })
    expect(replica.status().paused).toEqual([])
    const said = logger.lines.filter(({ message }) => message.includes('paused by ana'))
    expect(said).toEqual([
      {
        level: 'warn',
        message: 'thing: paused by ana: the warehouse is moving; running steps end, no other begins',
      },
      { level: 'info', message: 'thing: no longer paused by ana: the warehouse is moving' },
    ])
  })

  test("of a phase: the others go on, and its owner's state still leads out of it", async () => {
    const { replica } = await prepared()
    await pause({ phase: 'Creating' })
    await insert(['a', 'b'])
    await insert(['gone'], { state: 'Deleted' })
    await replica.runOnce()
    expect(await phases()).toEqual({ a: 'Creating', b: 'Creating' })
    await resume({ phase: 'Creating' })
    await replica.runOnce()
    expect(await phases()).toEqual({ a: 'Created', b: 'Created' })
  })

  test('of a resting phase holds its deadlines, of a final one its removals', async () => {
    const resting = thingOf({
      phases: {
        Creating: { next: ['Created'] },
        Created: { rest: true, deadline: { after: '1h', moveTo: 'Deleting' } },
        Deleting: { next: ['Deleted'] },
        Deleted: { final: true },
      },
    })
    const lifecycle = thingWith(async (_doc, step) => step.moveTo('Created'), resting)
    const { replica } = await prepared(lifecycle)
    await insert(['late'])
    await replica.runOnce()
    await insert(['final'], { phase: 'Deleted' })
    await pause({ phase: 'Created' })
    await pause({ phase: 'Deleted' })
    await backDate(database.db, 'late', 3_700_000)
    await replica.runOnce()
    expect(await phases()).toEqual({ late: 'Created', final: 'Deleted' })
    await resume({ phase: 'Created' })
    await resume({ phase: 'Deleted' })
    await replica.runOnce()
    expect(await phases()).toEqual({})
  })

  test('of one document holds up no other, and is over at once when it is resumed', async () => {
    const { replica } = await prepared()
    const others = Array.from({ length: 500 }, (_, i) => `t${i}`)
    await insert(['a', ...others])
    await insert(['ruled'], { phase: 'Created' })
    await pause({ id: 'a' })
    await pause({ id: 'ruled' })
    await things(database.db).updateOne({ _id: 'ruled' }, { $set: { state: 'Deleted' } })
    await replica.runOnce()
    const { a, ruled, ...rest } = await phases()
    expect({ a, ruled }).toEqual({ a: 'Creating', ruled: 'Created' })
    expect(new Set(Object.values(rest))).toEqual(new Set(['Created']))
    await resume({ id: 'a' })
    await resume({ id: 'ruled' })
    await replica.runOnce()
    expect((await phases())['a']).toBe('Created')
    expect(await phases()).not.toHaveProperty('ruled')
  })

  test('lets a running step end and be recorded, and begins no further one of its chain', async () => {
    const [began, goOn] = [gate(), gate()]
    const steps: string[] = []
    const chain = thingWith(async (doc, step) => {
      steps.push(`${doc._id} ${doc.n ?? 0}`)
      if (doc.n === 1) return step.moveTo('Created')
      began.open()
      await goOn.wait
      return step.again({ set: { n: 1 } })
    })
    const { replica } = await prepared(chain)
    await insert(['a'])
    await replica.tick()
    await began.wait
    await pause({ id: 'a' })
    await replica.tick()
    goOn.open()
    await replica.idle()
    expect(steps).toEqual(['a 0'])
    const a = await things(database.db).findOne({ _id: 'a' })
    expect(a).toMatchObject({ phase: 'Creating', n: 1, lockedAt: new Date(0) })
    expect(a!['progress'].claims ?? 0).toBe(0)
    await resume({ id: 'a' })
    await replica.runOnce()
    expect(steps).toEqual(['a 0', 'a 1'])
  })

  test('gives back what waits for a place, uncounted', async () => {
    const [began, goOn] = [gate(), gate()]
    const seen: string[] = []
    const narrow = thingWith(
      async (doc, step) => {
        seen.push(doc._id)
        began.open()
        await goOn.wait
        return step.moveTo('Created')
      },
      thingOf({ concurrency: 1 }),
    )
    const { replica } = await prepared(narrow)
    await insert(['a', 'b', 'c'])
    await replica.tick()
    await began.wait
    await pause()
    await replica.tick()
    goOn.open()
    await replica.idle()
    expect(seen).toHaveLength(1)
    const left = await things(database.db).find({ phase: 'Creating' }).toArray()
    expect(left.map(({ lockedBy, progress }) => [lockedBy ?? null, progress?.claims ?? 0])).toEqual([
      [null, 0],
      [null, 0],
    ])
  })

  test('is in force for what is rung for, and what is inserted meanwhile is taken at once when it is over', async () => {
    const orders = thing.handle({
      Creating: async (_doc, step) => step.moveTo('Created'),
      Deleting: async (_doc, step) => step.moveTo('Deleted'),
    })
    const { replica } = await prepared(orders)
    await pause({ phase: 'Creating' })
    await replica.start()
    await eventually(() => expect(replica.status().doorbell).toBe('capped'))
    await eventually(() => expect(replica.status().paused).toHaveLength(1))
    await orders.insert({ _id: 'a' })
    await orders.insert({ _id: 'ruled', state: 'Deleted' } as never)
    // The rule shows that a look has come after the ring.
    await eventually(async () => expect(await phases()).toEqual({ a: 'Creating' }))
    await resume({ phase: 'Creating' })
    await eventually(async () => expect(await phases()).toEqual({ a: 'Created' }))
  })

  test('ends by itself', async () => {
    const { replica } = await prepared()
    await insert(['a'])
    const [{ since, until }] = (await pause({ for: '1h' })) as unknown as [{ since: Date; until: Date }]
    expect(until.getTime() - since.getTime()).toBe(3_600_000)
    await replica.runOnce()
    expect(await phases()).toEqual({ a: 'Creating' })
    await entries().updateOne({ _id: 'thing' }, { $set: { 'pauses.0.until': since } })
    await replica.runOnce()
    expect(await phases()).toEqual({ a: 'Created' })
    // It is forgotten with the next one.
    await pause({ phase: 'Creating' })
    expect((await entries().findOne({ _id: 'thing' }))!['pauses']).toHaveLength(1)
  })

  test('that has ended by itself is none that could be ended', async () => {
    const orders = thing.handle({
      Creating: async (_doc, step) => step.moveTo('Created'),
      Deleting: async (_doc, step) => step.moveTo('Deleted'),
    })
    await prepared(orders)
    const [{ since }] = (await pause({ for: '1h' })) as unknown as [{ since: Date }]
    await entries().updateOne({ _id: 'thing' }, { $set: { 'pauses.0.until': since } })
    await expect(resume()).rejects.toThrow("thing isn't paused as such: nothing is")
    expect(await orders.attach(database.db).resume()).toBe(false)
  })

  test('by an owner: of the lifecycle, a phase or a document', async () => {
    const orders = thing.handle({
      Creating: async (_doc, step) => step.moveTo('Created'),
      Deleting: async (_doc, step) => step.moveTo('Deleted'),
    })
    const early = orders.attach(database.db)
    expect(await early.pause({ by: 'ana' })).toBe('notRegistered')
    const { replica } = await prepared(orders)
    await insert(['a', 'b'])
    expect(await orders.pause({ id: 'a', by: 'ana', reason: 'no ink', for: '1h' })).toBe('done')
    await replica.runOnce()
    expect(await phases()).toEqual({ a: 'Creating', b: 'Created' })
    expect(replica.status().paused).toEqual([
      expect.objectContaining({
        what: 'document',
        _id: 'a',
        text: expect.stringMatching(/^thing a: paused by ana until/),
      }),
    ])
    expect(await orders.resume({ id: 'a' })).toBe(true)
    expect(await orders.resume({ id: 'a' })).toBe(false)
    expect(await orders.pause({ phase: 'Creating', by: 'ana', until: new Date(Date.now() + 3_600_000) })).toBe('done')
    await replica.runOnce()
    expect((await phases())['a']).toBe('Creating')
    expect(await orders.resume({ phase: 'Creating' })).toBe(true)
    await replica.runOnce()
    expect((await phases())['a']).toBe('Created')
    const wrong = orders.pause({ phase: 'Packing', id: 5, by: '', for: '2', why: 'x' } as never)
    await expect(wrong).rejects.toMatchObject({
      name: 'InvalidOptions',
      problems: expect.arrayContaining([
        "phase: expected one of Creating, Created, Deleting, Deleted, got 'Packing'",
        'by: expected a name, got an empty string',
        expect.stringContaining('for: expected a duration from 1s to 36500d'),
        expect.stringContaining("unknown option 'why'"),
      ]),
    })
    for (const [until, got] of [
      [new Date(5), 'a time in the future, got 1970-01-01T00:00:00.005Z'],
      [new Date(Number.NaN), 'a date, got an invalid date'],
    ] as const)
      await expect(orders.pause({ by: 'ana', until })).rejects.toThrow(`pause: until: expected ${got}`)
    await expect(orders.pause({ by: 'ana', for: '500ms' })).rejects.toThrow("such as '30s', '5m' or '2h', got '500ms'")
    await expect(orders.pause({ by: 'ana', phase: 'Creating', id: 'a' } as never)).rejects.toThrow(
      'pause: expected phase or id, got both',
    )
  })

  test('of everything is apart from those of single lifecycles', async () => {
    const { replica } = await prepared()
    await insert(['a'])
    await pause()
    await pause({ lifecycle: undefined, by: 'ben' })
    await resume({ lifecycle: undefined })
    await replica.runOnce()
    expect(await phases()).toEqual({ a: 'Creating' })
    await resume()
    await replica.runOnce()
    expect(await phases()).toEqual({ a: 'Created' })
  })

  test('that a person has broken pauses nothing, and others stay in force', async () => {
    const { replica } = await prepared()
    await insert(['a'])
    for (const broken of ['all', [null, 5, 'x', {}, { what: 'phase' }, { what: 'document' }], { what: 'all' }]) {
      await entries().updateOne({ _id: 'thing' }, { $set: { pauses: broken } } as Document)
      expect((await replica.runOnce()).due).toBeGreaterThanOrEqual(0)
    }
    expect(await phases()).toEqual({ a: 'Created' })
    await insert(['b'])
    const odd = [7, { what: 'phase', phase: 'Creating', by: 5, since: 'x', until: 'never' }]
    await entries().updateOne({ _id: 'thing' }, { $set: { pauses: odd } } as Document)
    await replica.runOnce()
    expect((await phases())['b']).toBe('Creating')
    expect(replica.status().paused[0]).toMatchObject({ text: 'thing, phase Creating: paused by ?' })
    await resume({ phase: 'Creating' })
    await replica.runOnce()
    expect((await phases())['b']).toBe('Created')
  })

  test.each<[string, Partial<PauseRequest>, string, string]>([
    [
      'a lifecycle',
      { lifecycle: 'thong' },
      'UsageError',
      "expected a lifecycle (thing), got 'thong'; did you mean 'thing'?",
    ],
    ['a phase', { phase: 'Creatin' }, 'UsageError', 'expected a phase of thing (Creating, Created, Deleting, Deleted)'],
    ['a document', { id: 'nobody' }, 'NotFound', 'no document with the _id nobody in thing'],
    ['a time', { until: new Date(0) }, 'UsageError', 'expected a time in the future, got 1970-01-01T00:00:00.000Z; by'],
    ['so short a time', { for: '0s' }, 'UsageError', 'expected a duration (for) of at least 1s, got 0s'],
    ['a duration', { for: 'soon' }, 'UsageError', 'for: expected a duration such as'],
    [
      'an end',
      { for: '1h', until: new Date(1e14) },
      'UsageError',
      'expected a time (until) or a duration (for), got both',
    ],
    ['a scope', { phase: 'Creating', id: 'a' }, 'UsageError', 'expected a phase or a document, got both'],
    ['a reason', { reason: 'x'.repeat(501) }, 'UsageError', 'expected a reason of at most 500 characters, got 501'],
    ['a name', { by: '' }, 'UsageError', 'expected who pauses it, got an empty string'],
  ])('refuses %s that it cannot be', async (_what, request, name, problem) => {
    await prepared()
    const refusal = pause(request)
    await expect(refusal).rejects.toThrow(problem)
    await expect(refusal).rejects.toMatchObject({ name })
    expect((await entries().findOne({ _id: 'thing' }))?.['pauses'] ?? []).toEqual([])
  })

  test('is refused where too much is paused already, and its end where nothing is', async () => {
    const { replica } = await prepared()
    const ids = Array.from({ length: MOST_PAUSES }, (_, i) => `t${i}`)
    await insert([...ids, 'one more'])
    const pauses = ids.map((_id) => ({ what: 'document', _id, by: 'ana', since: new Date() }))
    await entries().updateOne({ _id: 'thing' }, { $set: { pauses } } as Document)
    const refusal = pause({ id: 'one more' })
    await expect(refusal).rejects.toThrow(
      'thing has 200 pauses already, 200 of them of single documents; pause a phase or all of it: phaselock pause thing',
    )
    await expect(refusal).rejects.toMatchObject({ name: 'Refused', obstacle: { reason: 'tooManyPauses' } })
    await replica.runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Creating' })).toBe(MOST_PAUSES)
    // The same one again takes no more room.
    await pause({ id: 't0', reason: 'for a reason' })
    await expect(resume()).rejects.toThrow(
      "thing isn't paused as such: 200 other pauses are in force; see: phaselock pauses",
    )
    await expect(resume({ id: 'one more' })).rejects.toMatchObject({ name: 'Refused' })
    await things(database.db).deleteOne({ _id: 't1' })
    expect(await resume({ id: 't1' })).toMatchObject([{ lifecycle: 'thing', what: 'document', _id: 't1' }])
  })

  test("that only a forward step of the server's clock ends stays, whatever else is paused or resumed meanwhile", async () => {
    await prepared()
    const stored = async () =>
      (await entries().findOne({ _id: 'thing' }))!['pauses'].map((one: Document) => one['what'])
    await insert(['a'])
    await pause({ phase: 'Creating', for: '10m' })
    const clockStep = { at: new Date(), ms: 3_600_000, until: new Date(Date.now() + 60_000) }
    const seemsOver = { 'pauses.0.until': new Date(Date.now() - 600_000) }
    await entries().updateOne({ _id: 'thing' }, { $set: { ...seemsOver, clockStep } })
    await pause({ id: 'a' })
    expect(await stored()).toEqual(['phase', 'document'])
    await resume({ id: 'a' })
    expect(await stored()).toEqual(['phase'])
    await entries().updateOne({ _id: 'thing' }, { $set: { 'clockStep.until': new Date(0) } })
    await pause({ id: 'a' })
    expect(await stored()).toEqual(['document'])
  })
})
