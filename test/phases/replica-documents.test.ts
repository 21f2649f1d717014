import { hostname } from 'node:os'
import { afterEach, describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import type { Replica, ReplicaOptions } from '../../src/index.js'
import { REPLICAS_COLLECTION } from '../../src/lock/index.js'
import { listReplicas } from '../../src/operations/index.js'
import { clientAt } from '../lock/fixture.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { gate, recordingLogger, replicaOf, SteppedClock, thingOf, things, thingWith } from '../support/thing.js'

const TEN_SECONDS = 10_000
const aboutDocuments = ({ message }: { message: string }) => message.includes(REPLICAS_COLLECTION)

describe('the document of a replica', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  // After that, so that it goes last.
  const database = useDatabase()

  const lifecycle = (options = {}) => thingWith(async (_doc, step) => step.moveTo('Created'), thingOf(options))
  const documents = () => database.db.collection<Document & { _id: string }>(REPLICAS_COLLECTION)
  const documentOf = ({ identity }: Replica) => documents().findOne({ _id: identity })

  /** One that ticks when it is told to, as if by itself. */
  async function present(options: Partial<ReplicaOptions> = {}, lifecycleOf_ = lifecycle(), db = database.db) {
    const clock = new SteppedClock()
    const logger = recordingLogger()
    const replica = replicaOf(db, lifecycleOf_, { clock, logger, doorbell: 'off', grace: '0s', ...options })
    replicas.push(replica)
    await replica.prepare()
    replica.wakeBetweenTicks()
    await replica.tick()
    return { replica, clock, logger }
  }

  test('says who it is, what it runs and what it holds; a stop removes it', async () => {
    const held = gate()
    const slow = thingWith(
      async (_doc, step) => {
        await held.wait
        return step.moveTo('Created')
      },
      thingOf({ concurrency: 3 }),
    )
    const { replica, clock } = await present({ name: 'api-1' }, slow)
    await eventually(async () => expect(await documentOf(replica)).not.toBeNull())
    const { startedAt, seenAt, ...first } = (await documentOf(replica))!
    expect(startedAt).toBeInstanceOf(Date)
    expect(seenAt >= startedAt).toBe(true)
    expect(first).toEqual({
      _id: replica.identity,
      version: expect.stringMatching(/^\d+\.\d+\.\d+/),
      host: hostname(),
      pid: process.pid,
      everyMs: TEN_SECONDS,
      lifecycles: [
        {
          name: 'thing',
          graph: expect.stringMatching(/^[0-9a-f]{12}$/),
          phases: ['Creating', 'Deleting'],
          places: 3,
          free: 3,
          held: 0,
          heldIn: [],
        },
      ],
      loopMs: expect.any(Number),
      tickMs: expect.any(Number),
    })
    await things(database.db).insertMany([
      { _id: 'a', phase: 'Creating' },
      { _id: 'b', phase: 'Creating' },
    ])
    await replica.tick()
    await eventually(() => expect(replica.status().running).toBe(2))
    await eventually(async () => {
      clock.advance(TEN_SECONDS)
      await replica.tick()
      expect((await documentOf(replica))!['lifecycles'][0]).toMatchObject({ free: 1, held: 2 })
    })
    expect((await documentOf(replica))!['startedAt']).toEqual(startedAt)
    held.open()
    await replica.stop()
    expect(await documents().countDocuments()).toBe(0)
  })

  test('beatEvery: a rarer one is live for three of its beats; 0s: there is none', async () => {
    const { replica, clock } = await present({ beatEvery: '1m' })
    await eventually(async () => expect(await documentOf(replica)).toMatchObject({ everyMs: 60_000 }))
    const { seenAt } = (await documentOf(replica))!
    clock.advance(TEN_SECONDS)
    await replica.tick()
    await replica.stop() // a beat that is under way is over then
    await documents().insertOne({ _id: 'slow~1', everyMs: 60_000, seenAt, lifecycles: [{ name: 'thing' }] })
    const isLive = async () => {
      const { replicas: all } = await listReplicas({ db: database.db, models: [lifecycle().model] })
      return all.find(({ name }) => name === 'slow~1')!.live
    }
    const seenBefore = (ms: number) => documents().updateOne({}, [{ $set: { seenAt: { $subtract: ['$$NOW', ms] } } }])
    await seenBefore(150_000)
    expect(await isLive()).toBe(true)
    await seenBefore(180_000)
    expect(await isLive()).toBe(false)

    await documents().deleteMany()
    const none = await present({ beatEvery: '0s' })
    none.clock.advance(TEN_SECONDS)
    await none.replica.tick()
    await none.replica.stop()
    expect(await documents().countDocuments()).toBe(0)
  })

  test('is written once in ten seconds of an idle replica, which looks once a second; one that is ticked by hand has none', async () => {
    const proxy = await TcpProxy.start(database.uri)
    const client = await clientAt(proxy.uri, { monitorCommands: true })
    try {
      const db = client.db(database.db.databaseName)
      const seen: string[] = []
      const asked = new Set<number>()
      const answered: number[] = []
      client.on('commandStarted', ({ commandName, command, requestId }) => {
        seen.push(`${commandName} ${command[commandName]}`)
        if (command[commandName] === REPLICAS_COLLECTION) asked.add(requestId)
      })
      client.on('commandSucceeded', ({ requestId }) => void (asked.has(requestId) && answered.push(requestId)))
      const { replica, clock } = await present({}, lifecycle(), db)
      // The first beat, and what dead ones have left.
      await eventually(() => expect(answered).toHaveLength(2))
      seen.length = 0
      const sent = (what: string) => seen.filter((command) => command === what)
      // Its first duty begins after half a minute.
      for (let second = 1; second <= 29; second += 1) {
        clock.advance(1_000)
        proxy.stepClock(1_000)
        await replica.tick()
        await eventually(() => expect(answered).toHaveLength(2 + Math.floor(second / 10)))
      }
      expect(sent(`update ${REPLICAS_COLLECTION}`)).toHaveLength(2)
      expect(sent('aggregate phaselock.lifecycles')).toHaveLength(29)
      expect(new Set(seen)).toEqual(new Set(['aggregate phaselock.lifecycles', `update ${REPLICAS_COLLECTION}`]))
      await replica.stop()
    } finally {
      await client.close()
      await proxy.stop()
    }
    const byHand = replicaOf(database.db, lifecycle())
    await byHand.runOnce()
    expect(await documentOf(byHand)).toBeNull()
  })

  test('is what it was after a person has edited or removed it; each start has its own, whatever its name', async () => {
    const [one, two] = [await present({ name: 'api' }), await present({ name: 'api' })]
    await eventually(async () => expect(await documents().countDocuments()).toBe(2))
    const before = await documentOf(one.replica)
    await documents().updateOne(
      { _id: one.replica.identity },
      { $set: { seenAt: 'now', startedAt: 7, lifecycles: 'all' } },
    )
    await documents().deleteOne({ _id: two.replica.identity })
    await documents().insertMany([{ _id: 'by hand' }, { _id: 'too', seenAt: null, lifecycles: [7] }])
    await eventually(async () => {
      for (const { clock, replica } of [one, two]) {
        clock.advance(TEN_SECONDS)
        await replica.tick()
      }
      const after = await documentOf(one.replica)
      expect(after).toMatchObject({
        lifecycles: before!['lifecycles'],
        startedAt: expect.any(Date),
        seenAt: expect.any(Date),
      })
      expect(await documentOf(two.replica)).toMatchObject({
        lifecycles: before!['lifecycles'],
        startedAt: expect.any(Date),
      })
    })
    expect(one.logger.lines.filter(aboutDocuments)).toEqual([])
  })

  test('if it cannot be written the replica works as ever, and says so once', async () => {
    await database.db.createCollection(REPLICAS_COLLECTION, { validator: { never: { $exists: true } } })
    const { replica, clock, logger } = await present()
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await eventually(async () => {
      clock.advance(TEN_SECONDS)
      await replica.tick()
      expect(logger.lines.filter(aboutDocuments)).toHaveLength(1)
    })
    for (let beats = 0; beats < 5; beats += 1) {
      clock.advance(TEN_SECONDS)
      await replica.tick()
    }
    await eventually(async () => expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(1))
    expect(logger.lines.filter(aboutDocuments)).toEqual([
      {
        level: 'warn',
        message: expect.stringMatching(/^this replica works, but its document in .* can't be written: /),
      },
    ])
    expect(replica.status().notReady).toEqual([])
  })

  test('a beat without an answer holds up no tick, no step and no stop', async () => {
    const asked: string[] = []
    const answer = gate()
    const updateOne = () => {
      asked.push('beat')
      return answer.wait
    }
    const collection = (name: string, options: object) =>
      Object.assign(database.db.collection(name, options), name === REPLICAS_COLLECTION && { updateOne })
    const db = new Proxy(database.db, {
      get: (target, field) => (field === 'collection' ? collection : Reflect.get(target, field, target)),
    })
    const { replica, clock } = await present({}, lifecycle(), db)
    await eventually(() => expect(asked).toEqual(['beat']))
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    clock.advance(TEN_SECONDS)
    await replica.tick()
    await eventually(async () => expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(1))
    await replica.stop()
    expect(asked).toEqual(['beat'])
    answer.open()
  })

  test('of a thousand killed ones the newest hundred stay for a day; what lives, and what a person has put there, stays', async () => {
    const ago = (ms: number) => ({ $subtract: ['$$NOW', ms] })
    const killed = Array.from({ length: 1_000 }, (_, i) => ({ _id: `killed~${String(i).padStart(6, '0')}`, n: i }))
    await documents().insertMany([
      ...killed,
      { _id: 'old~000001', n: -1 },
      { _id: 'by hand' },
      { _id: 'ahead~000001', n: -2 },
    ])
    await documents().updateMany({ n: { $gte: 0 } }, [
      { $set: { seenAt: { $subtract: [ago(120_000), { $multiply: ['$n', 1_000] }] } } },
    ])
    await documents().updateMany({ n: -1 }, [{ $set: { seenAt: ago(25 * 3_600_000) } }])
    await documents().updateMany({ n: -2 }, [{ $set: { seenAt: ago(-25 * 3_600_000) } }])
    await documents().insertOne({ _id: 'live~000001' })
    await documents().updateOne({ _id: 'live~000001' }, [{ $set: { seenAt: '$$NOW' } }])
    const { replica } = await present()
    await eventually(async () => expect(await documents().countDocuments()).toBeLessThanOrEqual(103))
    const left = await documents().distinct('_id')
    expect(left).toEqual(
      expect.arrayContaining([replica.identity, 'live~000001', 'by hand', 'killed~000000', 'killed~000098']),
    )
    expect(left).not.toContain('old~000001')
    expect(left).not.toContain('ahead~000001')
    expect(left).not.toContain('killed~000100')
  })
})
