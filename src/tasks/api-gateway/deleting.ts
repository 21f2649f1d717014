import { NotOwned, type RegionSource } from '../../kubernetes/index.js'
import type { Handler } from '../../phases/index.js'
import type { ChildKind, Collections } from './collections.js'
import type { ApiGateway } from './documents.js'
import { type GatewayStep, inGateway } from './held-gateway.js'
import { isPlaced, namespaceOf } from './placing.js'

type Kind = GatewayStep<'Deleted'>

const GONE = { phases: ['Deleted'], on: 'removal' } as const

/** The kinds in the order of removal. */
const CHILD_KINDS = ['trigger', 'function', 'stage', 'runtimeDomain', 'gatewayDatabase'] as const satisfies ChildKind[]

/**
 * Removes a gateway's children, one kind per step, so that a failure repeats only its own kind: triggers, functions, stages,
 * runtime domains, the instance, the database. Children with a lifecycle are set to `Deleted`, and the gateway waits for them. It begins from
 * any phase, and removes whatever exists.
 */
export function deleting(collections: Collections, regions: RegionSource | undefined): Handler<'Deleted', ApiGateway> {
  const steps: Readonly<Record<string, Kind>> = {
    functions: (gateway, _doc, step) => gateway.delete('function').then(() => step.again({ step: 'stages' })),
    stages: (gateway, _doc, step) => gateway.delete('stage').then(() => step.again({ step: 'domains' })),
    domains: deleteDomains,
    database: deleteDatabase,
    ...(regions && { instance: deleteInstance, namespace: deleteNamespace(regions) }),
  }
  return inGateway(collections, async (gateway, doc, step) => {
    isPlaced(doc, regions)
    // It never had children: its gatewayId is impossible or belongs to another gateway, as do the children with that id.
    if (gateway.idProblem || (await gateway.otherOwner()) !== undefined) return step.moveTo('Deleted')
    return (steps[step.name ?? ''] ?? deleteTriggers)(gateway, doc, step)
  })
}

const deleteTriggers: Kind = async (gateway, _doc, step) => {
  await gateway.delete('trigger')
  return step.again({ step: 'functions' })
}

const deleteDomains: Kind = async (gateway, doc, step) => {
  const remaining = await gateway.tellToGo('runtimeDomain')
  if (remaining) return gateway.await(step, remaining, { ...GONE, kind: 'runtimeDomain' })
  // Each domain removes its own routes; these belong to domains that were removed by hand.
  await gateway.delete('route')
  return step.again({ step: doc.placed ? 'instance' : 'database' })
}

const deleteInstance: Kind = async (gateway, doc, step) => {
  const remaining = await gateway.tellToGo('instance')
  if (remaining) return gateway.await(step, remaining, { ...GONE, kind: 'instance' })
  return step.again({ step: doc.placed?.ownNamespace ? 'namespace' : 'database' })
}

/** Deletes the gateway's own namespace. A namespace of that name that isn't the gateway's is left alone: no object was created in it. */
function deleteNamespace(regions: RegionSource): Kind {
  return async (gateway, doc, step) => {
    if (!doc.placed?.ownNamespace) return step.again({ step: 'database' })
    const { cluster, ref } = await namespaceOf(regions, doc.placed, gateway, doc, step)
    try {
      const removal = await cluster.remove(ref)
      if (!removal.done) return step.wait(removal.text, { on: 'removal' })
    } catch (error) {
      if (!(error instanceof NotOwned)) throw error
    }
    return step.again({ step: 'database' })
  }
}

const deleteDatabase: Kind = async (gateway, doc, step) => {
  const remaining = await gateway.tellToGo('gatewayDatabase')
  if (remaining) return gateway.await(step, remaining, { ...GONE, kind: 'gatewayDatabase' })
  // Children that were written while others were being removed.
  const kinds = doc.placed ? [...CHILD_KINDS, 'instance' as const] : CHILD_KINDS
  for (const kind of kinds) if (await gateway.has(kind)) return step.again({ step: 'triggers' })
  return step.moveTo('Deleted')
}
