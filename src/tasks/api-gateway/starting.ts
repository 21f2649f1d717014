import type { RegionSource } from '../../kubernetes/index.js'
import type { Handler } from '../../phases/index.js'
import type { Collections } from './collections.js'
import type { ApiGateway } from './documents.js'
import { type GatewayStep, inGateway, setRoutes } from './held-gateway.js'
import { isPlaced } from './placing.js'

/**
 * Starting: the instance and the domains in its region, if it has one; then domains are routed, then triggers resumed. Each child is marked
 * with the step's fence, so no late step undoes it.
 */
export function starting(collections: Collections, regions: RegionSource | undefined): Handler<'Started', ApiGateway> {
  return inGateway(collections, async (gateway, doc, step) => {
    if (step.name === 'triggers') {
      await gateway.write('trigger', { active: true })
      return step.moveTo('Started')
    }
    if (step.name === 'routes' || !isPlaced(doc, regions)) return setRoutes(gateway, true, step)
    switch (step.name) {
      case 'instance started':
        return awaitInstance(gateway, doc, step)
      case 'domains':
        await gateway.tell('runtimeDomain', 'Running')
        return step.again({ step: 'domain served' })
      case 'domain served':
        return awaitDomain(gateway, doc, step)
      default:
        await gateway.tell('instance', 'Running')
        return step.again({ step: 'instance started' })
    }
  })
}

/** Waits for the instance. One that couldn't be started isn't restarted automatically: the cause that it reports must be corrected first. */
const awaitInstance: GatewayStep<'Started'> = async (gateway, _doc, step) => {
  const instance = await gateway.collections.of('instance').findOne({ _id: { $eq: gateway.gatewayId as never } })
  if (!instance) return step.park('expected its Instance, which was removed: delete the gateway and create it again')
  if (instance['phase'] === 'Started') return step.again({ step: 'domains' })
  return gateway.await(step, instance, { kind: 'instance', phases: ['Started'] })
}

const SERVED_OR_GONE = ['Created', 'Deleting', 'Deleted']

/** Waits only for the gateway's own domain: one added later that waits for its certificate holds up no other domain. */
const awaitDomain: GatewayStep<'Started'> = async (gateway, _doc, step) => {
  const own = await gateway.collections.of('runtimeDomain').findOne({ _id: { $eq: gateway.gatewayId as never } })
  if (own?.['phase'] === 'Stopped' && own['state'] !== 'Running') return step.again({ step: 'domains' })
  // Its owner may have removed it, and use others.
  if (!own || SERVED_OR_GONE.includes(own['phase'])) return step.again({ step: 'routes' })
  return gateway.await(step, own, { kind: 'runtimeDomain', phases: SERVED_OR_GONE })
}
