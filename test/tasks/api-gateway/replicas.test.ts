import { describe, expect, test } from '@jest/globals'
import type { WrapHandler } from '../../../src/tasks/index.js'
import { eventually } from '../../support/database.js'
import { NOTHING, useWorld } from './world.js'

const ONE_OF_EACH = { ...NOTHING, stage: 1, runtimeDomain: 1, gatewayDatabase: 1, route: 1 }

describe('several replicas', () => {
  const world = useWorld()

  test('every handler that fails after its effect is repeated, and still there is one of each child', async () => {
    const failed: string[] = []
    const crash: WrapHandler = (lifecycle, phase, handler) => async (doc, step) => {
      const outcome = await handler(doc, step)
      const at = `${lifecycle} ${phase} ${step.name ?? '-'}`
      if (failed.includes(at)) return outcome
      failed.push(at)
      throw new Error('crashed before its outcome was recorded')
    }
    const replica = world.replica({ keepFor: '0s', wrap: crash })
    const { gateway, runtimeDomain, gatewayDatabase } = replica.lifecycles
    const id = await world.insert({ name: 'once' })
    await world.addChildren(id, 1)
    const untilPhase = (phase: string | undefined) =>
      world.until(async () => {
        for (const { owner } of [gateway, runtimeDomain, gatewayDatabase].map((one) => ({ owner: one.owner() }))) {
          await owner.wake(id)
        }
        expect((await world.gateway(id))['phase']).toBe(phase)
      })
    await untilPhase('Created')
    const all = { ...ONE_OF_EACH, trigger: 1, function: 1, stage: 2 }
    expect(await world.children(id)).toEqual(all)
    await world.want(id, 'Running')
    await untilPhase('Started')
    expect(await world.served(id)).toEqual({ routes: 1, triggers: 1 })
    await world.want(id, 'Stopped')
    await untilPhase('Stopped')
    expect(await world.children(id)).toEqual(all)
    expect(await world.served(id)).toEqual({ routes: 0, triggers: 0 })
    await world.want(id, 'Deleted')
    await untilPhase(undefined)
    expect(await world.children(id)).toEqual(NOTHING)
    expect(await world.gatewayDatabases()).toEqual([])
    expect(failed.length).toBeGreaterThanOrEqual(4 + 2 + 1 + 2 + 2 + 5 + 1 + 1)
  })

  test('two over 50 gateways at once: one of each child, each step recorded once; then nothing is left', async () => {
    const replicas = [world.replica({ keepFor: '0s' }), world.replica({ keepFor: '0s' })]
    const gateways = await Promise.all(Array.from({ length: 50 }, () => world.insert({ state: 'Running' })))
    const together = (check: () => Promise<unknown>) =>
      eventually(
        async () => {
          await Promise.all(replicas.map((replica) => replica.runOnce()))
          await check()
        },
        { timeoutMs: 150_000, everyMs: 50 },
      )
    const inPhase = (phase: string) => world.collection('gateway').countDocuments({ phase })
    await together(async () => expect(await inPhase('Started')).toBe(50))
    const steps = ['- again', 'stage again', 'domain again', 'children moveTo Created', '- rule Starting', '- again']
    for (const id of gateways) {
      expect(await world.children(id)).toEqual(ONE_OF_EACH)
      expect(await world.history(id)).toEqual([...steps, 'triggers moveTo Started'])
    }
    expect(await world.gatewayDatabases()).toHaveLength(50)
    await world.collection('gateway').updateMany({}, { $set: { state: 'Deleted' } })
    await together(async () => expect(await world.collection('gateway').countDocuments()).toBe(0))
    for (const id of gateways) expect(await world.children(id)).toEqual(NOTHING)
    expect(await world.gatewayDatabases()).toEqual([])
  }, 400_000)
})
