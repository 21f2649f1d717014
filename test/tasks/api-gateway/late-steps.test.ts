import { describe, expect, test } from '@jest/globals'
import type { Replica } from '../../../src/index.js'
import { NoLongerHeld } from '../../../src/phases/index.js'
import { Collections } from '../../../src/tasks/api-gateway/collections.js'
import { HeldGateway } from '../../../src/tasks/api-gateway/held-gateway.js'
import type { WrapHandler } from '../../../src/tasks/index.js'
import { COLLECTIONS } from '../../../src/tasks/index.js'
import type { Duration } from '../../../src/time/index.js'
import { eventually } from '../../support/database.js'
import { gate } from '../../support/thing.js'
import { type Id, NOTHING, useWorld, type World } from './world.js'

type Kind = keyof typeof COLLECTIONS

/** So long that the late one renews nothing meanwhile: that would bring back a lease which the test lets expire. */
const LOCK_TIMEOUT = '10m'

/** A replica whose named step, once, begins late: after its document has been taken away. */
function lateReplica(
  world: World,
  at: { lifecycle: string; phase: string; step: string | undefined },
  keepFor: Duration = '0s',
) {
  const arrived = gate()
  const go = gate()
  const ended = gate()
  let used = false
  const wrap: WrapHandler = (lifecycle, phase, handler) => async (doc, step) => {
    if (used || lifecycle !== at.lifecycle || phase !== at.phase || step.name !== at.step) return handler(doc, step)
    used = true
    arrived.open()
    await go.wait
    return handler(doc, step).finally(ended.open)
  }
  const replica = world.replica({ keepFor, wrap, lockTimeout: LOCK_TIMEOUT })
  const late = {
    replica,
    arrived: arrived.wait,
    /** Lets the late step do what it still can, and records what it can. */
    async run() {
      go.open()
      await ended.wait
      await replica.idle()
    },
  }
  return late
}

/** As if the lease had run out: the holder was paused for long. */
async function expire(world: World, kind: Kind, id: Id): Promise<void> {
  await world.collection(kind).updateOne({ _id: id as never }, { $set: { lockedAt: new Date(1) } })
}

/** Ticks until the late replica's step stands at its gate. */
async function untilArrived(late: { replica: Replica; arrived: Promise<void> }) {
  let there = false
  void late.arrived.then(() => {
    there = true
  })
  await eventually(async () => {
    await late.replica.tick()
    return there
  })
}

describe('a step that goes on after its gateway was taken from it', () => {
  const world = useWorld()

  test.each([undefined, 'stage', 'domain'])('creates nothing any more (Creating, %s)', async (step) => {
    // Its document is kept: that it is there must not be enough.
    const late = lateReplica(world, { lifecycle: 'api-gateway', phase: 'Creating', step }, '1h')
    const other = world.replica({ keepFor: '1h', lockTimeout: LOCK_TIMEOUT })
    const id = await world.insert()
    await untilArrived(late)
    await world.want(id, 'Deleted')
    await expire(world, 'gateway', id)
    await world.untilPhase(id, 'Deleted', [other])
    await late.run()
    expect(await world.children(id)).toEqual(NOTHING)
    for (let n = 0; n < 2; n += 1) await other.runOnce()
    expect(await world.children(id)).toEqual(NOTHING)
    expect(await world.gatewayDatabases()).toEqual([])
  })

  test.each([
    ['gateway-database', undefined],
    ['runtime-domain', undefined],
    ['runtime-domain', 'route'],
  ])('creates nothing any more (%s, %s)', async (lifecycle, step) => {
    const kind = lifecycle === 'runtime-domain' ? 'runtimeDomain' : 'gatewayDatabase'
    const late = lateReplica(world, { lifecycle, phase: 'Creating', step })
    const other = world.replica({ keepFor: '0s', lockTimeout: LOCK_TIMEOUT })
    const id = await world.insert()
    await untilArrived(late)
    await world.want(id, 'Deleted')
    await expire(world, 'gateway', id)
    await expire(world, kind, id)
    await world.until(async () => expect(await world.gateway(id)).toEqual({}), [other])
    await late.run()
    expect(await world.children(id)).toEqual(NOTHING)
    const { databases } = await world.db.admin().listDatabases({ nameOnly: true })
    expect(databases.map(({ name }) => name)).not.toContain(`gw_${id}`)
  })

  test('doesn’t suspend the triggers and routes of a gateway that was started again', async () => {
    const late = lateReplica(world, { lifecycle: 'api-gateway', phase: 'Stopping', step: undefined })
    const other = world.replica({ keepFor: '0s', lockTimeout: LOCK_TIMEOUT })
    const id = await world.insert({ state: 'Running' })
    await world.addChildren(id)
    await world.untilPhase(id, 'Started', [other])
    await world.want(id, 'Stopped')
    await untilArrived(late)
    await expire(world, 'gateway', id)
    await world.untilPhase(id, 'Stopped', [other])
    await world.want(id, 'Running')
    await world.untilPhase(id, 'Started', [other])
    await late.run()
    expect(await world.served(id)).toEqual({ routes: 1, triggers: 2 })
    expect(await world.gateway(id)).toMatchObject({ phase: 'Started' })
  })

  test.each([undefined, 'functions', 'stages', 'domains', 'database'])(
    'takes nothing from a new gateway of the same id (Deleting, %s)',
    async (step) => {
      const late = lateReplica(world, { lifecycle: 'api-gateway', phase: 'Deleting', step })
      const other = world.replica({ keepFor: '0s', lockTimeout: LOCK_TIMEOUT })
      const id = await world.insert()
      await world.addChildren(id)
      await world.untilPhase(id, 'Created', [other])
      await world.want(id, 'Deleted')
      await untilArrived(late)
      await expire(world, 'gateway', id)
      await world.until(async () => expect(await world.gateway(id)).toEqual({}), [other])
      await world.insert({ _id: id, state: 'Running' })
      await world.addChildren(id)
      await world.untilPhase(id, 'Started', [other])
      const before = await world.children(id)
      await late.run()
      await other.runOnce()
      expect(await world.children(id)).toEqual(before)
      expect(await world.served(id)).toEqual({ routes: 1, triggers: 2 })
      expect(await world.collection('runtimeDomain').findOne()).not.toHaveProperty('state')
      expect(await world.gatewayDatabases()).toHaveLength(1)
    },
  )

  test('doesn’t drop the database of a new gateway of the same id', async () => {
    const late = lateReplica(world, { lifecycle: 'gateway-database', phase: 'Deleting', step: undefined })
    const other = world.replica({ keepFor: '0s', lockTimeout: LOCK_TIMEOUT })
    const id = await world.insert()
    await world.untilPhase(id, 'Created', [other])
    await world.want(id, 'Deleted')
    await untilArrived(late)
    await expire(world, 'gatewayDatabase', id)
    await world.until(async () => expect(await world.gateway(id)).toEqual({}), [other])
    await world.insert({ _id: id })
    await world.untilPhase(id, 'Created', [other])
    await late.run()
    expect(await world.gatewayDatabases()).toHaveLength(1)
  })

  test('doesn’t remove the route of a new gateway of the same id', async () => {
    const late = lateReplica(world, { lifecycle: 'runtime-domain', phase: 'Deleting', step: undefined })
    const other = world.replica({ keepFor: '0s', lockTimeout: LOCK_TIMEOUT })
    const id = await world.insert()
    await world.untilPhase(id, 'Created', [other])
    await world.want(id, 'Deleted')
    await untilArrived(late)
    await expire(world, 'runtimeDomain', id)
    await world.until(async () => expect(await world.gateway(id)).toEqual({}), [other])
    await world.insert({ _id: id, state: 'Running' })
    await world.untilPhase(id, 'Started', [other])
    await late.run()
    expect(await world.served(id)).toMatchObject({ routes: 1 })
  })

  test('writes to no child that a step with a higher fence has written, however late it is', async () => {
    const collections = new Collections(world.db)
    await collections.ensureIndexes()
    const id = await world.insert({ lockedBy: 'a token' })
    for (const kind of ['trigger', 'stage', 'runtimeDomain'] as const) {
      await world.collection(kind).insertMany([
        { _id: 'newer', gatewayId: id, gatewayFence: 1_001 },
        { _id: 'older', gatewayId: id, gatewayFence: 999 },
      ])
    }
    const { signal } = new AbortController()
    const step = { fence: 1_000, signal, leaseLeftMs: () => 1 }
    const gateway = new HeldGateway(collections, { _id: id, lockedBy: 'a token' }, step)
    await gateway.write('trigger', { active: true })
    await gateway.delete('stage')
    await gateway.tellToGo('runtimeDomain')
    expect(await world.collection('trigger').find({ active: true }).toArray()).toMatchObject([{ _id: 'older' }])
    expect(await world.collection('stage').find().toArray()).toMatchObject([{ _id: 'newer' }])
    expect(await world.collection('runtimeDomain').find({ state: 'Deleted' }).toArray()).toMatchObject([
      { _id: 'older' },
    ])
    await world.collection('gateway').updateOne({ _id: id as never }, { $set: { lockedBy: 'another' } })
    await world.collection('stage').insertOne({ _id: 'older', gatewayId: id })
    await expect(gateway.delete('stage')).rejects.toThrow(NoLongerHeld)
    await expect(gateway.create('stage', { _id: 'late' })).rejects.toThrow(NoLongerHeld)
  })

  test('a child that finds its gateway gone while it is being created goes by itself', async () => {
    const late = lateReplica(world, { lifecycle: 'api-gateway', phase: 'Creating', step: 'children' })
    const id = await world.insert()
    await untilArrived(late)
    await eventually(async () => {
      await late.replica.tick()
      for (const kind of ['runtimeDomain', 'gatewayDatabase'] as const) {
        expect(await world.collection(kind).findOne()).toMatchObject({ phase: 'Created' })
      }
    })
    await world.collection('gateway').deleteOne({ _id: id as never })
    await world.collection('runtimeDomain').updateMany({}, { $set: { phase: 'Creating', lockedAt: new Date(0) } })
    await world.collection('gatewayDatabase').updateMany({}, { $set: { phase: 'Creating', lockedAt: new Date(0) } })
    await late.run()
    await world.until(async () =>
      expect(await world.children(id)).toMatchObject({ runtimeDomain: 0, gatewayDatabase: 0, route: 0 }),
    )
    expect(await world.gatewayDatabases()).toEqual([])
  })
})
