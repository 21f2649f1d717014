import type { RegionSource } from '../../kubernetes/index.js'
import type { Handler } from '../../phases/index.js'
import type { ChildKind, Collections } from '../collections.js'
import type { ApiGateway } from '../documents.js'
import { HeldGateway } from './held-gateway.js'
import { isPlaced, readingAnswers, removeNamespace } from './placing.js'

type Deleting = Handler<'Deleted', ApiGateway>
type Kind = (gateway: HeldGateway, ...args: Parameters<Deleting>) => ReturnType<Deleting>

/** In the order of removal. */
const CHILD_KINDS = ['trigger', 'function', 'stage', 'runtimeDomain', 'gatewayDatabase'] as const satisfies ChildKind[]

/**
 * Removes a gateway's children, one kind per step, so that a failure repeats only its own kind: triggers, functions, stages,
 * runtime domains, the instance, the database. Children with a lifecycle are told to go and waited for. It begins from any phase, and
 * takes what is there.
 */
export function deleting(collections: Collections, regions: RegionSource | undefined): Deleting {
  const steps: Readonly<Record<string, Kind>> = {
    functions: (gateway, _doc, step) => gateway.delete('function').then(() => step.again({ step: 'stages' })),
    stages: (gateway, _doc, step) => gateway.delete('stage').then(() => step.again({ step: 'domains' })),
    domains: deleteDomains,
    database: deleteDatabase,
    ...(regions && {
      instance: deleteInstance,
      namespace: (gateway, doc, step) => deleteNamespace(regions, gateway, doc, step),
    }),
  }
  return readingAnswers(async (doc, step) => {
    await collections.ensureIndexes()
    isPlaced(doc, regions)
    const gateway = new HeldGateway(collections, doc, step)
    // It never had children: its gatewayId is impossible, or another gateway's, and so are the children with it.
    if (gateway.idProblem || (await gateway.otherOwner()) !== undefined) return step.moveTo('Deleted')
    const kind = steps[step.name ?? ''] ?? deleteTriggers
    return kind(gateway, doc, step)
  })
}

const deleteTriggers: Kind = async (gateway, _doc, step) => {
  await gateway.delete('trigger')
  return step.again({ step: 'functions' })
}

const deleteDomains: Kind = async (gateway, doc, step) => {
  await gateway.tellToGo('runtimeDomain')
  const remaining = await gateway.remaining('runtimeDomain')
  if (remaining) return step.wait(remaining)
  // Each domain removes its own; these belong to domains that somebody has removed by hand.
  await gateway.delete('route')
  return step.again({ step: doc.placed ? 'instance' : 'database' })
}

const deleteInstance: Kind = async (gateway, doc, step) => {
  await gateway.tellToGo('instance')
  const remaining = await gateway.remaining('instance')
  if (remaining) return step.wait(remaining)
  return step.again({ step: doc.placed?.ownNamespace ? 'namespace' : 'database' })
}

async function deleteNamespace(regions: RegionSource, ...[gateway, doc, step]: Parameters<Kind>): ReturnType<Deleting> {
  const remaining = doc.placed?.ownNamespace ? await removeNamespace(regions, gateway, doc, step) : undefined
  return remaining === undefined ? step.again({ step: 'database' }) : step.wait(remaining)
}

const deleteDatabase: Kind = async (gateway, doc, step) => {
  await gateway.tellToGo('gatewayDatabase')
  const remaining = await gateway.remaining('gatewayDatabase')
  if (remaining) return step.wait(remaining)
  // Children that were written while others were being removed.
  const kinds = doc.placed ? [...CHILD_KINDS, 'instance' as const] : CHILD_KINDS
  for (const kind of kinds) if (await gateway.has(kind)) return step.again({ step: 'triggers' })
  return step.moveTo('Deleted')
}
