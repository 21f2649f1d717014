import type { RegionSource } from '../../kubernetes/index.js'
import { PARKED_AT } from '../../lock/index.js'
import type { Handler } from '../../phases/index.js'
import type { Collections } from './collections.js'
import type { ApiGateway } from './documents.js'
import { type GatewayStep, inGateway, setRoutes } from './held-gateway.js'
import { isPlaced } from './placing.js'

/** Stopping: domains no longer routed, then triggers suspended; then, in its region, first the domains, then the instance stopped. */
export function stopping(collections: Collections, regions: RegionSource | undefined): Handler<'Stopped', ApiGateway> {
  return inGateway(collections, async (gateway, doc, step) => {
    switch (step.name) {
      case 'triggers':
        await gateway.write('trigger', { active: false })
        return isPlaced(doc, regions) ? step.again({ step: 'domains' }) : step.moveTo('Stopped')
      case 'domains':
        return stopDomains(gateway, doc, step)
      case 'instance':
        return stopInstance(gateway, doc, step)
      default:
        return setRoutes(gateway, false, step)
    }
  })
}

const stopDomains: GatewayStep<'Stopped'> = async (gateway, _doc, step) => {
  await gateway.tell('runtimeDomain', 'Stopped')
  const served = { $or: [{ phase: { $in: ['Created', 'Updating', 'Stopping'] } }, BEING_CREATED] }
  const one = await gateway.unlike('runtimeDomain', served)
  if (one) return gateway.await(step, one, { kind: 'runtimeDomain', phases: ['Stopped', 'Deleting', 'Deleted'] })
  return step.again({ step: 'instance' })
}

/** A domain parked before it was served doesn't keep the gateway from stopping. */
const BEING_CREATED = { phase: 'Creating', lockedAt: { $ne: PARKED_AT } }

const stopInstance: GatewayStep<'Stopped'> = async (gateway, _doc, step) => {
  await gateway.tell('instance', 'Stopped')
  const phases = ['Stopped', 'Deleted']
  const instance = await gateway.unlike('instance', { phase: { $nin: phases } })
  return instance ? gateway.await(step, instance, { kind: 'instance', phases }) : step.moveTo('Stopped')
}
