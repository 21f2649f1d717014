import { describe, expect, test } from '@jest/globals'
import { type Document, ObjectId } from 'mongodb'
import { PARKED_AT } from '../../../src/lock/index.js'
import { type Id, NOTHING, useWorld } from './world.js'

describe('runtime domains', () => {
  const world = useWorld()

  const domain = async (id: Id): Promise<Document> =>
    (await world.collection('runtimeDomain').findOne({ _id: id as never })) ?? {}

  test('a host name that another gateway has parks the domain with the owner, and its gateway can still be deleted', async () => {
    const replica = world.replica({ keepFor: '0s' })
    const first = await world.insert({ customDomain: 'Shop.Example.org' })
    await world.untilPhase(first, 'Created')
    const second = await world.insert({ customDomain: 'shop.example.org' })
    await world.until(async () => expect(await domain(second)).toMatchObject({ lockedAt: PARKED_AT }))
    const message = `host name 'shop.example.org' is reserved by RuntimeDomain ${first} of the gateway ${first}`
    expect((await domain(second))['progress']).toMatchObject({ error: { message } })
    await world.until(async () =>
      expect((await world.gateway(second))['progress']).toMatchObject({ waitingFor: expect.stringContaining(message) }),
    )
    await world.want(second, 'Deleted')
    await world.until(async () => expect(await world.gateway(second)).toEqual({}))
    expect(await world.children(second)).toEqual(NOTHING)
    expect(await world.collection('route').find().toArray()).toMatchObject([
      { _id: 'shop.example.org', gatewayId: first },
    ])

    // The name is free again once its owner is gone.
    await world.want(first, 'Deleted')
    await world.until(async () => expect(await world.gateway(first)).toEqual({}))
    const third = await world.insert({ customDomain: 'shop.example.org', state: 'Running' })
    await world.untilPhase(third, 'Started')
    expect(await world.collection('route').find().toArray()).toMatchObject([
      { _id: 'shop.example.org', gatewayId: third, active: true },
    ])
    expect(replica.status().held).toBe(0)
  })

  test('a host name that is none parks the domain; mended and unparked it goes on', async () => {
    const replica = world.replica()
    const id = await world.insert({ customDomain: 'no host' })
    await world.until(async () => expect(await domain(id)).toMatchObject({ lockedAt: PARKED_AT }))
    expect((await domain(id))['progress'].error.message).toMatch(/expected a host name .* got "no host"/)
    await world.collection('runtimeDomain').updateOne({ _id: id as never }, { $set: { host: 'a.host' } })
    expect(await replica.lifecycles.runtimeDomain.owner().unpark(id)).toBe('done')
    await world.untilPhase(id, 'Created')
    expect(await world.gateway(id)).toMatchObject({ host: 'a.host' })
  })

  test('one that joins a started gateway is routed at once, one that joins a stopped gateway is not', async () => {
    world.replica()
    const started = await world.insert({ state: 'Running' })
    const stopped = await world.insert({ state: 'Stopped' })
    await world.untilPhase(started, 'Started')
    await world.untilPhase(stopped, 'Stopped')
    const join = (gatewayId: Id, host: string) =>
      world.collection('runtimeDomain').insertOne({ _id: new ObjectId(), phase: 'Creating', gatewayId, host })
    await join(started, 'one.example')
    await join(stopped, 'two.example')
    await world.until(async () =>
      expect(await world.collection('runtimeDomain').countDocuments({ phase: 'Created' })).toBe(4),
    )
    expect(await world.served(started)).toMatchObject({ routes: 2 })
    expect(await world.served(stopped)).toMatchObject({ routes: 0 })
    await world.want(stopped, 'Running')
    await world.untilPhase(stopped, 'Started')
    expect(await world.served(stopped)).toMatchObject({ routes: 2 })
    await world.want(stopped, 'Deleted')
    await world.untilPhase(stopped, 'Deleted')
    expect(await world.children(stopped)).toEqual(NOTHING)
  })

  test('another host name by one plain write: reservation and route move, and stay active', async () => {
    world.replica()
    const id = await world.insert({ state: 'Running', customDomain: 'old.example' })
    await world.untilPhase(id, 'Started')
    await world
      .collection('runtimeDomain')
      .updateOne({ _id: id as never }, { $set: { host: 'New.example', state: 'Updating' } })
    await world.until(async () =>
      expect(await domain(id)).toMatchObject({ phase: 'Created', state: 'Running', reservedHost: 'new.example' }),
    )
    expect(await world.collection('route').find().toArray()).toMatchObject([{ _id: 'new.example', active: true }])
    const next = await world.insert({ customDomain: 'old.example' })
    await world.untilPhase(next, 'Created')
  })

  test('a domain told to go takes its route and reservation with it; its gateway goes on', async () => {
    world.replica()
    const id = await world.insert({ state: 'Running' })
    await world.untilPhase(id, 'Started')
    await world.collection('runtimeDomain').updateOne({ _id: id as never }, { $set: { state: 'Deleted' } })
    await world.until(async () => expect(await domain(id)).toEqual({}))
    expect(await world.served(id)).toMatchObject({ routes: 0 })
    expect(await world.gateway(id)).toMatchObject({ phase: 'Started' })
  })

  test('two gateways with one gatewayId: the second is parked with the first one’s id, and its end leaves the first alone', async () => {
    world.replica({ keepFor: '0s' })
    const first = await world.insert({ gatewayId: 'shared' })
    await world.untilPhase(first, 'Created')
    const second = await world.insert({ gatewayId: 'shared' })
    await world.until(async () => expect(await world.gateway(second)).toMatchObject({ lockedAt: PARKED_AT }))
    expect((await world.gateway(second))['progress'].error.message).toBe(
      `gatewayId shared belongs to ApiGateway ${first}`,
    )
    await world.want(second, 'Deleted')
    await world.until(async () => expect(await world.gateway(second)).toEqual({}))
    expect(await world.children('shared')).toMatchObject({ stage: 1, runtimeDomain: 1, gatewayDatabase: 1, route: 1 })
  })

  test('a database of the same name that is somebody else’s is neither used nor dropped', async () => {
    world.replica({ keepFor: '0s' })
    const id = `mine-${new ObjectId()}`
    const foreign = world.db.client.db(`gw_${id}`)
    await foreign.collection('precious').insertOne({ a: 1 })
    try {
      await world.insert({ _id: id })
      await world.until(async () =>
        expect((await world.gateway(id))['progress']).toMatchObject({
          waitingFor: expect.stringMatching(
            /is parked: database gw_mine.* exists and belongs to somebody else: it has precious/,
          ),
        }),
      )
      await world.want(id, 'Deleted')
      await world.until(async () => expect(await world.gateway(id)).toEqual({}))
      expect(await foreign.collection('precious').countDocuments()).toBe(1)
    } finally {
      await foreign.dropDatabase()
    }
  })

  test('an impossible gatewayId parks, and can be deleted without touching others’ children', async () => {
    world.replica({ keepFor: '0s' })
    await world.collection('trigger').insertOne({ _id: 't', name: 'has no gatewayId' })
    await world.insert({ _id: 'odd', gatewayId: ['a', 'b'] })
    // The driver gives an inserted document without an _id one of its own; other clients may not.
    await world
      .collection('gateway')
      .updateOne({ _id: null as never }, { $set: { phase: 'Creating' } }, { upsert: true })
    await world.until(async () =>
      expect(await world.collection('gateway').countDocuments({ lockedAt: PARKED_AT })).toBe(2),
    )
    await world.collection('gateway').updateMany({}, { $set: { state: 'Deleted' } })
    await world.until(async () => expect(await world.collection('gateway').countDocuments()).toBe(0))
    expect(await world.collection('trigger').countDocuments()).toBe(1)
  })
})
