import { describe, expect, test } from '@jest/globals'
import { BSON, type Document, MongoClient } from 'mongodb'
import { copyFlows, FLOWS_COLLECTION, REPLICAS_COLLECTION } from '../../src/lock/index.js'
import { listReplicas, readFlow } from '../../src/operations/index.js'
import { clientAt } from '../lock/fixture.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { replicaOf, ShiftedClock, thing, things, thingWith } from '../support/thing.js'

describe('the flow in beats', () => {
  const database = useDatabase()
  const flows = () => database.db.collection<Document & { _id: string }>(FLOWS_COLLECTION)
  const beats = () => database.db.collection<Document & { _id: string }>(REPLICAS_COLLECTION)

  test('a closed minute goes with the beat, once, and is read from there; the copy changes nothing', async () => {
    const proxy = await TcpProxy.start(database.uri)
    const client = await clientAt(proxy.uri)
    const clock = new ShiftedClock()
    const lifecycle = thingWith(async (_doc, step) => step.moveTo('Created'))
    const options = { clock, doorbell: 'off', sweepEvery: '0s' } as const
    const replica = replicaOf(client.db(database.db.databaseName), lifecycle, options)
    await replica.prepare()
    replica.wakeBetweenTicks()
    const timePasses = (ms: number) => {
      proxy.stepClock(ms)
      clock.advance(ms)
    }
    await replica.tick()
    await things(database.db).insertMany(['a', 'b', 'c'].map((_id) => ({ _id, phase: 'Creating' })))
    await replica.tick()
    await replica.idle()
    timePasses(70_000)
    await replica.tick()
    await eventually(async () => expect((await beats().findOne())?.['flow']).toHaveLength(1))
    const before = await readFlow(database.db, { lifecycle: 'thing' })
    expect(before.moves).toEqual([{ from: 'Creating', to: 'Created', outcome: 'moveTo', n: 3 }])
    expect(await flows().countDocuments()).toBe(0)
    const now = new Date(Date.now() + 70_000)
    expect(await copyFlows(database.db, now)).toEqual({ copied: 1, removed: 0 })
    expect(await copyFlows(database.db, now)).toEqual({ copied: 0, removed: 0 })
    const after = await readFlow(database.db, { lifecycle: 'thing' })
    expect(after.moves).toEqual(before.moves)
    expect((await readFlow(database.db, { lifecycle: 'thing', hours: 2 })).moves).toEqual(before.moves)
    // Nothing is recorded any more: the beats that follow carry nothing.
    const flow = (await beats().findOne())!['flow']
    for (let i = 0; i < 3; i += 1) {
      timePasses(70_000)
      await replica.tick()
    }
    await replica.stop()
    expect((await beats().findOne())?.['flow'] ?? flow).toEqual(flow)
    await client.close()
    await proxy.stop()
  })

  const minuteWith = (...names: string[]) => ({
    ...{ seq: 1, at: new Date(Math.floor(Date.now() / 60_000) * 60_000) },
    lifecycles: names.map((name) => ({ name, moves: [{ from: 'A', to: 'B', outcome: 'moveTo', n: 1 }] })),
  })

  test('whoever looks reads only the rows of one lifecycle, and of the list of replicas none', async () => {
    const flow = [minuteWith('thing', 'other'), { ...minuteWith('other'), seq: 2 }, 5, { seq: 3, lifecycles: 'x' }]
    const lifecycles = [{ name: 'thing', phases: ['Creating'], graph: 'a' }]
    await beats().insertOne({ _id: 'r~1', seenAt: new Date(), everyMs: 10_000, lifecycles, flow })
    const client = await new MongoClient(database.uri, { monitorCommands: true }).connect()
    const replies: string[] = []
    const limits: unknown[] = []
    client.on('commandStarted', ({ commandName, command }) => {
      if (commandName === 'aggregate' && command['aggregate'] === REPLICAS_COLLECTION) limits.push(command['maxTimeMS'])
    })
    client.on('commandSucceeded', ({ reply }) => replies.push(BSON.EJSON.stringify(reply)))
    try {
      const db = client.db(database.db.databaseName)
      expect((await readFlow(db, { lifecycle: 'thing', minutes: 5 })).moves).toMatchObject([{ n: 1 }])
      expect(replies.join()).not.toContain('other')
      replies.length = 0
      expect((await listReplicas({ db, models: [thing.model] } as never)).replicas).toMatchObject([{ name: 'r~1' }])
      expect(replies.join()).not.toContain('moveTo')
      expect(limits).not.toContain(undefined)
    } finally {
      await client.close()
    }
  })

  test('the flow of many replicas is copied by some at a time', async () => {
    await beats().insertMany(Array.from({ length: 120 }, (_, i) => ({ _id: `r~${i}`, flow: [minuteWith('thing')] })))
    const client = await new MongoClient(database.uri, { monitorCommands: true }).connect()
    let most = 0
    client.on('commandSucceeded', ({ reply }) => {
      const { ns, firstBatch = [] } = (reply as Document)['cursor'] ?? {}
      if (ns?.endsWith(REPLICAS_COLLECTION)) most = Math.max(most, firstBatch.length)
    })
    try {
      const db = client.db(database.db.databaseName)
      expect(await copyFlows(db, new Date())).toEqual({ copied: 120, removed: 0 })
      expect(most).toBe(50)
      expect((await readFlow(database.db, { lifecycle: 'thing', minutes: 5 })).moves).toMatchObject([{ n: 120 }])
    } finally {
      await client.close()
    }
  })
})
