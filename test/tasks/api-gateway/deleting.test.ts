import { describe, expect, test } from '@jest/globals'
import type { AnyHandler } from '../../../src/index.js'
import { PARKED_AT } from '../../../src/lock/index.js'
import type { WrapHandler } from '../../../src/tasks/index.js'
import { databaseNameFor } from '../../../src/tasks/index.js'
import { type Id, NOTHING, useWorld } from './world.js'

const ORDER = ['- again', 'functions again', 'stages again', 'domains again', 'database moveTo Deleted']

/** Fails once after the named step of the gateway's phase has done its work, then waits until it is mended. */
function failingAfter(phase: string, name: string | undefined): { wrap: WrapHandler; mend: () => void } {
  let mended = false
  let failed = false
  const wrap: WrapHandler = (lifecycle, ofPhase, handler) => async (doc, step) => {
    const outcome = await handler(doc, step)
    if (mended || lifecycle !== 'api-gateway' || ofPhase !== phase || step.name !== name) return outcome
    if (failed) return step.wait('to be mended', { for: '1h' })
    failed = true
    throw new Error(`the machine fell over after ${name}`)
  }
  const mend = () => {
    mended = true
  }
  return { wrap, mend }
}

describe('deleting a gateway', () => {
  const world = useWorld()

  test('removes triggers, functions, stages, domains and the database, in this order, one kind a step', async () => {
    const seen: Record<string, number>[] = []
    const watch: WrapHandler = (lifecycle, phase, handler) => async (doc, step) => {
      if (lifecycle === 'api-gateway' && phase === 'Deleting') seen.push(await world.children(doc['_id'] as Id))
      return handler(doc, step)
    }
    world.replica({ wrap: watch })
    const id = await world.insert()
    await world.addChildren(id)
    await world.untilPhase(id, 'Created')
    await world.want(id, 'Deleted')
    await world.untilPhase(id, 'Deleted')
    expect((await world.history(id)).slice(-5)).toEqual(ORDER)
    const kinds = ['trigger', 'function', 'stage', 'runtimeDomain', 'gatewayDatabase'] as const
    const goneAt = kinds.map((kind) => {
      const n = seen.findIndex((counts) => counts[kind] === 0)
      return n < 0 ? seen.length : n
    })
    expect(goneAt).toEqual([...goneAt].sort((a, b) => a - b))
    expect(new Set(goneAt).size).toBe(5)
    expect(await world.children(id)).toEqual(NOTHING)
  })

  test('a failure repeats only its own kind', async () => {
    const { wrap, mend } = failingAfter('Deleting', 'functions')
    const replica = world.replica({ wrap })
    const id = await world.insert()
    await world.addChildren(id)
    await world.untilPhase(id, 'Created')
    await world.want(id, 'Deleted')
    await replica.runOnce()
    expect((await world.history(id)).slice(-2)).toEqual(['- again', 'functions error Deleting'])
    expect(await world.children(id)).toMatchObject({ trigger: 0, function: 0, stage: 3 })
    mend()
    await replica.lifecycles.gateway.owner().wake(id)
    await world.untilPhase(id, 'Deleted')
    expect((await world.history(id)).slice(-6)).toEqual(['- again', 'functions error Deleting', ...ORDER.slice(1)])
  })

  test.each([undefined, 'stage', 'domain', 'children'])('from a half-finished Creating: after %s', async (name) => {
    world.replica({ keepFor: '0s', wrap: failingAfter('Creating', name).wrap })
    const id = await world.insert()
    await world.until(async () => {
      const history = await world.history(id)
      expect(history.at(-1)).toBe(`${name ?? '-'} error Creating`)
    })
    await world.want(id, 'Deleted')
    await world.until(async () => expect(await world.gateway(id)).toEqual({}))
    expect(await world.children(id)).toEqual(NOTHING)
    expect(await world.gatewayDatabases()).toEqual([])
  })

  test('before anything was created', async () => {
    world.replica({ keepFor: '0s' })
    const id = await world.insert({ state: 'Deleted' })
    await world.addChildren(id)
    await world.until(async () => expect(await world.gateway(id)).toEqual({}))
    expect(await world.children(id)).toEqual(NOTHING)
  })

  test('while the gateway is parked', async () => {
    const park: WrapHandler = (lifecycle, phase, handler) =>
      lifecycle === 'api-gateway' && phase === 'Creating'
        ? async (doc, step) => (step.name === 'children' ? step.park('a person must look') : handler(doc, step))
        : handler
    world.replica({ keepFor: '0s', wrap: park })
    const id = await world.insert()
    await world.until(async () => expect(await world.gateway(id)).toMatchObject({ lockedAt: PARKED_AT }))
    await world.want(id, 'Deleted')
    await world.until(async () => expect(await world.gateway(id)).toEqual({}))
    expect(await world.children(id)).toEqual(NOTHING)
  })

  test('while its children sleep, and while they are parked', async () => {
    const sleepers: Record<string, AnyHandler> = {
      'runtime-domain': async (_doc, step) => step.wait('a certificate', { for: '1h' }),
      'gateway-database': async (_doc, step) => step.park('no space left'),
    }
    const wrap: WrapHandler = (lifecycle, phase, handler) =>
      phase === 'Creating' ? (sleepers[lifecycle] ?? handler) : handler
    world.replica({ keepFor: '0s', wrap })
    const id = await world.insert()
    await world.until(async () => {
      const { progress } = await world.gateway(id)
      expect(progress).toMatchObject({
        waitingFor: expect.stringMatching(/GatewayDatabase .* is parked: no space left/),
      })
    })
    await world.want(id, 'Deleted')
    await world.until(async () => expect(await world.gateway(id)).toEqual({}))
    expect(await world.children(id)).toEqual(NOTHING)
  })

  test.each(['Created', 'Started', 'Stopped'])('from %s', async (phase) => {
    world.replica({ keepFor: '0s' })
    const state = { Created: undefined, Started: 'Running', Stopped: 'Stopped' }[phase]
    const id = await world.insert(state ? { state } : {})
    await world.untilPhase(id, phase)
    await world.want(id, 'Deleted')
    await world.until(async () => expect(await world.gateway(id)).toEqual({}))
    expect(await world.gatewayDatabases()).toEqual([])
  })

  test.each(['Starting', 'Stopping'])('from %s, asleep', async (phase) => {
    const wrap: WrapHandler = (_lifecycle, ofPhase, handler) =>
      ofPhase === phase ? async (_doc, step) => step.wait('its time', { for: '1h' }) : handler
    const replica = world.replica({ keepFor: '0s', wrap })
    const id = await world.insert({ state: phase === 'Starting' ? 'Running' : 'Stopped' })
    await world.until(async () =>
      expect(await world.gateway(id)).toMatchObject({ phase, progress: { waitingFor: 'its time' } }),
    )
    // Running waits until a Stopping has ended; Deleted doesn't.
    await world.want(id, 'Running')
    await replica.runOnce()
    expect(await world.gateway(id)).toMatchObject({ phase })
    await world.want(id, 'Deleted')
    await world.until(async () => expect(await world.gateway(id)).toEqual({}))
  })

  test('children with a lifecycle are told and waited for, never taken from their holder', async () => {
    const begun = new Set<string>()
    const hold: WrapHandler = (lifecycle, phase, handler) => async (doc, step) => {
      if (lifecycle !== 'runtime-domain' || phase !== 'Deleting' || begun.has('released')) return handler(doc, step)
      begun.add('deleting')
      return step.wait('the cluster', { for: '1h' })
    }
    const replica = world.replica({ keepFor: '0s', wrap: hold })
    const id = await world.insert()
    await world.untilPhase(id, 'Created')
    await world.want(id, 'Deleted')
    await world.until(async () =>
      expect((await world.gateway(id))['progress']).toMatchObject({
        step: 'domains',
        waitingFor: expect.stringMatching(/RuntimeDomain .* is in Deleting/),
      }),
    )
    expect(await world.collection('runtimeDomain').findOne()).toMatchObject({ state: 'Deleted', phase: 'Deleting' })
    expect(await world.gatewayDatabases()).toEqual([databaseNameFor(id)])
    begun.add('released')
    await replica.lifecycles.runtimeDomain.owner().wake(id)
    await world.until(async () => expect(await world.gateway(id)).toEqual({}))
    expect(await world.children(id)).toEqual(NOTHING)
  })

  test('children that are written while others are being removed go too', async () => {
    let added = false
    const wrap: WrapHandler = (lifecycle, phase, handler) => async (doc, step) => {
      if (lifecycle === 'api-gateway' && phase === 'Deleting' && step.name === 'database' && !added) {
        added = true
        await world.addChildren(doc['_id'] as Id)
      }
      return handler(doc, step)
    }
    world.replica({ keepFor: '0s', wrap })
    const id = await world.insert({ state: 'Deleted' })
    await world.until(async () => expect(await world.gateway(id)).toEqual({}))
    expect(added).toBe(true)
    expect(await world.children(id)).toEqual(NOTHING)
  })
})
