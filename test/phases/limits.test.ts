import { afterEach, describe, expect, test } from '@jest/globals'
import type { Document, MongoClient } from 'mongodb'
import { Limits, type Replica, type ReplicaOptions, type RunnableLifecycle } from '../../src/index.js'
import { askForSlots, LIMITS_COLLECTION, readLimits, setLimit } from '../../src/lock/index.js'
import { sleep } from '../../src/time/index.js'
import { clientAt, ManualClock } from '../lock/fixture.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import {
  gate,
  recordingLogger,
  replicaOf,
  type Thing,
  thingOf,
  thingSpec,
  things,
  thingWith,
} from '../support/thing.js'

type Creating = (doc: Thing) => Promise<unknown>

describe('a limit', () => {
  const replicas: Replica[] = []
  let client: MongoClient | undefined
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
    await client?.close()
  })
  // After that, so that it goes last.
  const database = useDatabase()

  const limited = (settings: object, phase: object = {}) =>
    thingOf({ ...settings, phases: { ...thingSpec.phases, Creating: { ...thingSpec.phases.Creating, ...phase } } })

  const working = (creating: Creating, settings: object, phase?: object): RunnableLifecycle =>
    thingWith(
      async (doc, step) => {
        await creating(doc)
        return step.moveTo('Created')
      },
      limited(settings, phase),
    )

  const insert = (n: number, prefix = 'd') =>
    things(database.db).insertMany(Array.from({ length: n }, (_, i) => ({ _id: `${prefix}${i}`, phase: 'Creating' })))
  const limitDocuments = () => database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION)
  const created = () => things(database.db).countDocuments({ phase: 'Created' })

  async function prepared(lifecycle: RunnableLifecycle, options: Partial<ReplicaOptions> = {}) {
    const logger = recordingLogger()
    const replica = replicaOf(database.db, lifecycle, { logger, ...options })
    replicas.push(replica)
    await replica.prepare()
    return { replica, logger }
  }

  /** A handler that counts how many run at once, over all replicas of this process. */
  function counted(ms = 5) {
    const seen = { now: 0, most: 0, runs: 0 }
    const creating = async () => {
      seen.now += 1
      seen.runs += 1
      seen.most = Math.max(seen.most, seen.now)
      await sleep(ms)
      seen.now -= 1
    }
    return { seen, creating }
  }

  test('is used as far as it goes', async () => {
    const { seen, creating } = counted(20)
    const { replica } = await prepared(working(creating, { limits: [{ name: 'api', slots: 3 }] }))
    await insert(12)
    await replica.runOnce()
    expect(seen).toEqual({ now: 0, most: 3, runs: 12 })
  })

  test('goes on where slots are given back while a request for some is under way', async () => {
    const proxy = await TcpProxy.start(database.uri)
    client = await clientAt(proxy.uri)
    const [asking, end] = [proxy.hold('findAndModify', 2), gate()]
    const lifecycle = working(() => end.wait, { limits: [{ name: 'api', slots: 3 }] })
    const { replica } = await prepared(lifecycle, { renewalDb: client.db(database.db.databaseName) })
    await insert(12)
    await replica.tick()
    const request = await asking
    end.open()
    await eventually(() => expect(replica.status().limits).toMatchObject([{ used: 0 }]))
    request.release()
    await replica.idle() // without another look
    expect(await created()).toBe(12)
    await proxy.stop()
  })

  test('that is paused: nothing that needs it begins, until it is resumed or its time is over', async () => {
    const { db } = database
    const { creating } = counted(0)
    const limits = new Limits(db)
    expect(await limits.pause('api', { by: 'ana' })).toBe(false)
    const { replica, logger } = await prepared(working(creating, { limits: [{ name: 'api', slots: 2 }] }))
    await limits.pause('api', { by: 'ana', reason: 'they have asked us to' })
    await insert(2)
    await replica.runOnce()
    expect(await created()).toBe(0)
    expect(replica.status().limits).toEqual([{ limit: 'api', leased: 0, used: 0, total: 2, paused: true }])
    expect((await limits.list())[0]).toMatchObject({
      slots: 2,
      paused: { by: 'ana', reason: 'they have asked us to', until: null },
    })
    expect(await limits.resume('api')).toBe(true)
    expect(await limits.resume('api')).toBe(false)
    await replica.runOnce()
    expect(await created()).toBe(2)
    await limits.pause('api', { by: 'ana', for: '1h' })
    await insert(1, 'e')
    await replica.runOnce()
    expect(await created()).toBe(2)
    await limitDocuments().updateOne({ _id: 'api' }, [{ $set: { 'paused.until': '$paused.since' } }])
    await replica.runOnce()
    expect(await created()).toBe(3)
    const said = logger.lines.map(({ message }) => message).filter((message) => message.startsWith('limit api'))
    expect(said.slice(0, 2)).toEqual([
      'limit api: paused by ana: they have asked us to; documents that need it wait',
      'limit api: there are slots again',
    ])
    await expect(limits.pause('api', { by: '', phase: 'Creating' } as never)).rejects.toThrow(
      "limits.pause: by: expected a name, got an empty string; unknown option 'phase'",
    )
  })

  test('of which another is full is not kept from others', async () => {
    const { db } = database
    const { creating } = counted(0)
    await setLimit(db, 'a', { slots: 1 })
    await setLimit(db, 'b', { slots: 0 })
    const { replica } = await prepared(working(creating, { limits: ['a', 'b'] }))
    await insert(1)
    await replica.runOnce()
    await eventually(async () => expect((await readLimits(db, ['a'])).limits[0]!.holders).toEqual([]), {
      timeoutMs: 900,
    })
    expect(await created()).toBe(0)
  })

  test('is given back by runOnce, and by a stop', async () => {
    const { creating } = counted(0)
    const { replica } = await prepared(working(creating, { limits: [{ name: 'api', slots: 2 }] }))
    await insert(9)
    await replica.runOnce()
    expect(await created()).toBe(9)
    expect(replica.status().limits).toEqual([{ limit: 'api', leased: 2, used: 0, total: 2, paused: false }])
    await eventually(async () => expect((await readLimits(database.db)).limits[0]!.holders).toEqual([]))
    await insert(2, 'e')
    await replica.runOnce()
    await replica.stop()
    expect((await readLimits(database.db)).limits).toEqual([
      { name: 'api', slots: 2, rate: null, paused: null, holders: [], damaged: null },
    ])
  })

  test('without a free slot: nothing is claimed, others go on, and a slot that is given back is taken at once', async () => {
    const [began, end] = [gate(), gate()]
    const lifecycle = working(
      async (doc) => {
        if (doc._id !== 'slow') return
        began.open()
        await end.wait
      },
      {},
      { limits: [{ name: 'api', slots: 1 }] },
    )
    const { replica } = await prepared(lifecycle)
    const { replica: other } = await prepared(lifecycle)
    await things(database.db).insertOne({ _id: 'slow', phase: 'Creating' })
    await replica.tick()
    await began.wait
    await insert(3)
    await things(database.db).insertOne({ _id: 'gone', phase: 'Created', state: 'Deleted' })
    await other.runOnce()
    expect(await things(database.db).find({ phase: 'Creating', _id: /^d/ }).toArray()).toEqual(
      ['d0', 'd1', 'd2'].map((_id) => ({ _id, phase: 'Creating' })),
    )
    expect(await things(database.db).countDocuments({ _id: 'gone' })).toBe(0)
    end.open()
    await replica.idle()
    // The other one may have got the slot that was given back.
    await eventually(async () => {
      await replica.runOnce()
      expect(await created()).toBe(4)
    })
  })

  test.each([
    ['api', 'api'],
    ["the team's api", "'the team'\\''s api'"],
  ])('%s that is not there: what needs it waits, told once, until it is set', async (name, typed) => {
    const { creating } = counted(0)
    const { replica, logger } = await prepared(working(creating, { limits: [name] }))
    await insert(2)
    await replica.runOnce()
    await replica.runOnce()
    expect(await created()).toBe(0)
    const said = () =>
      logger.lines.filter(({ message }) => message.startsWith(`limit ${name}`)).map(({ message }) => message)
    expect(said()).toEqual([
      `limit ${name}: it isn't in phaselock.limits, so documents that need it wait; to set it: phaselock limits set ${typed} --slots 1`,
    ])
    await setLimit(database.db, name, { slots: 1 })
    await replica.runOnce()
    expect(await created()).toBe(2)
    expect(said().slice(1)).toEqual([`limit ${name}: there are slots again`])
  })

  test.each([0, -1, 'x', null, Number.NaN, [3], 1e12])('with %p slots: what needs it waits', async (slots) => {
    const { creating } = counted(0)
    const { replica } = await prepared(working(creating, { limits: ['api'] }))
    await limitDocuments().insertOne({ _id: 'api', slots })
    await insert(1)
    await replica.runOnce()
    expect(await created()).toBe(0)
  })

  test('lowered while in use lets what runs end, and grants nothing before enough is given back', async () => {
    const [clock, ends] = [new ManualClock(), [gate(), gate(), gate()]]
    const seen = { now: 0, most: 0 }
    const lifecycle = working(
      async (doc) => {
        seen.now += 1
        seen.most = Math.max(seen.most, seen.now)
        const end = ends[Number(doc._id.slice(1))]
        if (end) await end.wait
        seen.now -= 1
      },
      { limits: ['api'] },
    )
    await setLimit(database.db, 'api', { slots: 3 })
    const { replica } = await prepared(lifecycle, { clock })
    await insert(3)
    await replica.tick()
    await eventually(() => expect(seen.now).toBe(3))
    await setLimit(database.db, 'api', { slots: 1 })
    clock.advance(50) // until then it reuses what it has
    await things(database.db).insertMany([3, 4].map((i) => ({ _id: `d${i}`, phase: 'Creating' })))
    const { replica: other } = await prepared(lifecycle)
    ends[0]!.open(undefined)
    await eventually(() => expect(seen.now).toBe(2))
    await other.runOnce()
    expect(await created()).toBe(1)
    seen.most = 0
    for (const end of ends) end.open(undefined)
    await replica.idle()
    await other.runOnce()
    await replica.runOnce()
    expect(await created()).toBe(5)
    expect(seen.most).toBeLessThanOrEqual(2)
  })

  test('of a replica that was killed heals by itself', async () => {
    const { creating } = counted(0)
    await setLimit(database.db, 'api', { slots: 2 })
    await askForSlots(database.db, 'api', { by: 'dead~1', inUse: 0, slots: 2, starts: 0, leaseMs: 600_000, turn: 1 })
    const { replica } = await prepared(working(creating, { limits: ['api'] }))
    await insert(2)
    await replica.runOnce()
    expect(await created()).toBe(0)
    const [{ holders }] = (await readLimits(database.db)).limits as unknown as [{ holders: readonly { until: Date }[] }]
    const until = new Date(holders[0]!.until.getTime() - 600_000)
    await limitDocuments().updateOne({ _id: 'api' }, { $set: { 'holders.0.until': until } })
    await replica.runOnce()
    expect(await created()).toBe(2)
  })

  test('under which a step runs is renewed; where that fails the step is asked to stop before the lease is over', async () => {
    const began = gate()
    let aborted: unknown
    const lifecycle = (
      limited({ limits: ['api'], lockTimeout: '1s' }) as never as {
        handle(handlers: object): RunnableLifecycle
      }
    ).handle({
      async Creating(_doc: Thing, step: { signal: AbortSignal; moveTo(phase: string): unknown }) {
        began.open()
        await new Promise<void>((resolve) => {
          step.signal.addEventListener('abort', () => resolve(), { once: true })
        })
        aborted = step.signal.reason
        throw step.signal.reason
      },
      Deleting: async () => undefined,
    })
    await database.db.createCollection(LIMITS_COLLECTION, { validator: { locked: { $ne: true } } })
    await setLimit(database.db, 'api', { slots: 1 })
    const { replica } = await prepared(lifecycle)
    await insert(1)
    await replica.tick()
    await began.wait
    await sleep(2_500)
    expect(aborted).toBeUndefined()
    expect((await readLimits(database.db)).limits[0]!.holders).toMatchObject([{ by: replica.identity, slots: 1 }])
    await limitDocuments().updateOne({ _id: 'api' }, { $set: { locked: true } }, { bypassDocumentValidation: true })
    await eventually(() => expect(aborted).toMatchObject({ name: 'StepAborted', why: 'lease in danger' }))
    await limitDocuments().updateOne({ _id: 'api' }, { $set: { locked: false } }, { bypassDocumentValidation: true })
  })

  test('is set, listed and removed by a program', async () => {
    const limits = new Limits(database.db)
    expect(await limits.list()).toEqual([])
    expect(await limits.set('api', { slots: 5 })).toEqual({
      name: 'api',
      slots: 5,
      rate: null,
      paused: null,
      holders: [],
      damaged: null,
    })
    expect(await limits.set('api', { rate: '100/1m' })).toMatchObject({
      slots: 5,
      rate: { starts: 100, perMs: 60_000 },
    })
    expect(await limits.set('api', { slots: null, rate: null })).toMatchObject({ slots: null, rate: null })
    expect(await limits.remove('api')).toBe(true)
    expect(await limits.remove('api')).toBe(false)
    await expect(limits.set('api', {})).rejects.toThrow('limits.set: expected slots, a rate or both, got neither')
    await expect(limits.set('api', { slots: -1, rate: 5, burst: 3 } as never)).rejects.toThrow(
      "limits.set: slots: expected a whole number from 0 to 1000000, got -1; rate: expected a string, got 5; unknown option 'burst'",
    )
    for (const rate of ['100', '0/', '5/0s', 'x/1m', '5/1x', '9999999/1s'])
      await expect(limits.set('api', { rate })).rejects.toThrow('rate: expected how many in a span of time')
    expect(() => new Limits({} as never)).toThrow('new Limits: db: expected a database from the driver')
  })

  test('with a rate of none nothing begins', async () => {
    const { replica } = await prepared(working(async () => undefined, { limits: ['api'] }))
    await setLimit(database.db, 'api', { slots: 5, rate: { starts: 0, perMs: 60_000 } })
    await insert(2)
    await replica.runOnce()
    expect(await created()).toBe(0)
  })

  test('with a rate: no more begin than it allows, on two replicas, and none of them is lost', async () => {
    let began = 0
    const lifecycle = working(
      async () => {
        began += 1
      },
      { limits: ['api'] },
    )
    await setLimit(database.db, 'api', { rate: { starts: 20, perMs: 1_000 } })
    const startedMs = performance.now()
    for (let i = 0; i < 2; i += 1) await (await prepared(lifecycle)).replica.start()
    await insert(30)
    await eventually(async () => expect(await created()).toBe(30), { timeoutMs: 60_000 })
    // Two at once, the others one in 50 ms; the server's clock and this one may differ by some.
    expect(performance.now() - startedMs).toBeGreaterThan(1_390)
    expect(began).toBe(30)
  })

  test.each<[object, object, string]>([
    [
      { limits: 'api' },
      {},
      "limits: expected a list of limits, such as ['gitlab-api'] or [{ name: 'gitlab-api', slots: 5 }]",
    ],
    [{ limits: [''] }, {}, 'limits.0: expected the name of a limit: 1 to 200 characters'],
    [
      { limits: [{ name: 'api', slots: 1.5 }] },
      {},
      'limits.0.slots: expected a whole number from 1 to 1000000, got 1.5',
    ],
    [{ maxActive: 0 }, {}, 'maxActive: expected a whole number from 1 to 1000000, got 0'],
    [{}, { limits: ['api'], slots: -1 }, "phase 'Creating'.slots: expected a whole number from 1 to 1000000, got -1"],
    [{}, { slots: 2 }, "phase 'Creating' has slots but no limits"],
    [
      { limits: [{ name: 'a', slots: 1 }] },
      { limits: [{ name: 'a', slots: 2 }] },
      "limit 'a' is declared with 1 slot and with 2",
    ],
    [
      { limits: ['a', 'a'] },
      {},
      "limits: expected each limit once, got a, a; a phase's slots say how many a step needs",
    ],
    [{}, { limits: ['a', { name: 'a', slots: 2 }] }, "phase 'Creating'.limits: expected each limit once, got a, a"],
  ])('%j, %j is refused', (settings, phase, problem) => {
    expect(() => limited(settings, phase)).toThrow(problem)
  })
})
