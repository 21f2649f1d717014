import { describe, expect, test } from '@jest/globals'
import { apiGatewayLifecycles, databaseNameFor } from '../../../src/tasks/index.js'
import { systemClock } from '../../../src/time/index.js'
import { eventually } from '../../support/database.js'
import { NOTHING, useWorld } from './world.js'

describe('the life of a gateway', () => {
  const world = useWorld()

  test('created, started, stopped, started again, deleted, by replicas that take turns', async () => {
    for (let n = 0; n < 3; n += 1) world.replica({ keepFor: '0s' })
    const id = await world.insert({ name: 'Shop' })
    await world.addChildren(id)
    await world.untilPhase(id, 'Created')
    expect(await world.children(id)).toEqual({
      ...NOTHING,
      trigger: 2,
      function: 2,
      stage: 3,
      runtimeDomain: 1,
      gatewayDatabase: 1,
      route: 1,
    })
    const database = databaseNameFor(id)
    expect(await world.gateway(id)).toMatchObject({ database, host: 'shop.localhost' })
    expect(await world.served(id)).toEqual({ routes: 0, triggers: 0 })

    await world.want(id, 'Running')
    await world.untilPhase(id, 'Started')
    expect(await world.served(id)).toEqual({ routes: 1, triggers: 2 })
    await world.want(id, 'Stopped')
    await world.untilPhase(id, 'Stopped')
    expect(await world.served(id)).toEqual({ routes: 0, triggers: 0 })
    await world.want(id, 'Running')
    await world.untilPhase(id, 'Started')
    expect(await world.served(id)).toEqual({ routes: 1, triggers: 2 })

    expect(await world.gatewayDatabases()).toEqual([database])
    await world.want(id, 'Deleted')
    await world.until(async () => expect(await world.gateway(id)).toEqual({}))
    expect(await world.children(id)).toEqual(NOTHING)
    expect(await world.gatewayDatabases()).toEqual([])
    for (const { name } of await world.db.listCollections({}, { nameOnly: true }).toArray()) {
      if (!name.startsWith('phaselock.'))
        expect([name, await world.db.collection(name).countDocuments()]).toEqual([name, 0])
    }
  })

  test('sleeps until its children are there, or gone: their moves end its sleep', async () => {
    const { gateway, runtimeDomain, gatewayDatabase } = apiGatewayLifecycles({ db: world.db, keepFor: '0s' })
    const children = world.run([runtimeDomain, gatewayDatabase])
    const own = world.run([gateway])
    for (const replica of [children, own]) await replica.runOnce()
    const id = await world.insert()
    const sleepsFor = async (collection: string, lifecycle: string, phases: string[]) => {
      const progress = { waitingFor: expect.stringContaining(collection), awaits: { lifecycle, id, phases } }
      expect(await world.gateway(id)).toMatchObject({ progress })
      const longer = { $set: { lockedAt: new Date(Date.now() + 3_600_000) } }
      expect(await world.collection('gateway').updateOne({ _id: id as never, lockedBy: null }, longer)).toMatchObject({
        modifiedCount: 1,
      })
    }
    await own.runOnce()
    await sleepsFor('GatewayDatabase', 'gateway-database', ['Created'])
    for (const replica of [children, own]) await replica.runOnce()
    expect(await world.gateway(id)).toMatchObject({ phase: 'Created' })

    await world.want(id, 'Deleted')
    await own.runOnce()
    await sleepsFor('RuntimeDomain', 'runtime-domain', ['Deleted'])
    for (const replica of [children, own]) await replica.runOnce()
    await sleepsFor('GatewayDatabase', 'gateway-database', ['Deleted'])
    for (const replica of [children, own]) await replica.runOnce()
    expect(await world.gateway(id)).toEqual({})
  })

  test('its database is real: its first collection has a validator', async () => {
    world.replica()
    const id = await world.insert()
    await world.untilPhase(id, 'Created')
    const own = world.db.client.db(databaseNameFor(id))
    expect(await own.collection('Gateway').findOne()).toMatchObject({ gatewayId: id, database: world.db.databaseName })
    await expect(own.collection('Gateway').insertOne({ name: 'x' })).rejects.toMatchObject({ code: 121 })
  })

  test('a state that is there from the beginning is served after Created; Stopped also from Created', async () => {
    world.replica()
    const [running, stopped, none] = [
      await world.insert({ state: 'Running' }),
      await world.insert({ state: 'Stopped' }),
      await world.insert(),
    ]
    await world.untilPhase(running, 'Started')
    await world.untilPhase(stopped, 'Stopped')
    await world.untilPhase(none, 'Created')
    await world.replicas[0]!.runOnce()
    expect(await world.gateway(none)).toMatchObject({ phase: 'Created' })
  })

  test('a deleted gateway is kept for keepFor, without children', async () => {
    world.replica({ keepFor: '1h' })
    const id = await world.insert({ state: 'Deleted' })
    await world.untilPhase(id, 'Deleted')
    await world.replicas[0]!.runOnce()
    expect(await world.gateway(id)).toMatchObject({ phase: 'Deleted' })
    const hours = 3_600_000
    await world.collection('gateway').updateOne({ _id: id as never }, [
      {
        $set: {
          lockedAt: { $subtract: ['$lockedAt', hours] },
          'progress.since': { $subtract: ['$progress.since', hours] },
        },
      },
    ])
    await world.until(async () => expect(await world.gateway(id)).toEqual({}))
  })

  test('one inserted by hand as { phase: Creating } is Created within 3 s', async () => {
    const replica = world.replica()
    await replica.start()
    const tookMs: number[] = []
    // The best of some: this machine may be busy with other things.
    for (let n = 0; n < 10 && !tookMs.some((ms) => ms < 3_000); n += 1) {
      const startedMs = systemClock.monotonicMs()
      const { insertedId } = await world.db.collection('ApiGateway').insertOne({ phase: 'Creating' })
      await eventually(async () => expect(await world.gateway(insertedId)).toMatchObject({ phase: 'Created' }))
      tookMs.push(systemClock.monotonicMs() - startedMs)
    }
    expect(Math.min(...tookMs)).toBeLessThan(3_000)
  })

  test('ids of other types, and a gatewayId of the gateway', async () => {
    world.replica({ keepFor: '0s' })
    const ids = [4711, { tenant: 'a', n: 1 }, 'Some Shop!', new Date(12345)]
    for (const id of ids) await world.insert({ _id: id })
    const named = await world.insert({ gatewayId: 'by-name' })
    for (const id of [...ids, named]) await world.untilPhase(id, 'Created')
    expect(await world.children('by-name')).toMatchObject({ runtimeDomain: 1, stage: 1, gatewayDatabase: 1, route: 1 })
    expect(await world.children(named)).toEqual(NOTHING)
    for (const id of [...ids, named]) await world.want(id, 'Deleted')
    await world.until(async () => expect(await world.collection('gateway').countDocuments()).toBe(0))
    for (const id of [...ids, 'by-name']) expect(await world.children(id)).toEqual(NOTHING)
    expect(await world.gatewayDatabases()).toEqual([])
  })
})
