import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { copyFlows, FLOWS_COLLECTION, REPLICAS_COLLECTION } from '../../src/lock/index.js'
import { readFlow } from '../../src/operations/index.js'
import { clientAt } from '../lock/fixture.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { replicaOf, ShiftedClock, things, thingWith } from '../support/thing.js'

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
})
