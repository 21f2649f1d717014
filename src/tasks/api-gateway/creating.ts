import type { Document } from 'mongodb'
import type { RegionSource } from '../../kubernetes/index.js'
import type { Handler, Step } from '../../phases/index.js'
import { idText } from '../kit/index.js'
import { reservedFor } from '../runtime-domain/documents.js'
import { hostNameFor } from '../runtime-domain/host-name.js'
import { type ChildKind, type Collections, collectionOf } from './collections.js'
import { databaseNameFor } from './database-name.js'
import type { ApiGateway, GatewayInstance, GatewayPlacement } from './documents.js'
import { type GatewayStep, type HeldGateway, inGateway, type LivingKind } from './held-gateway.js'
import { namespaceOf } from './placing.js'

type Kind = GatewayStep<'Created'>

const DEFAULT_STAGE = 'default'

export interface CreatingParts {
  /** The suffix of host names if there are no regions. */
  readonly baseDomain: string
  readonly regions: RegionSource | undefined
  /** The defaults for an instance, unless its gateway overrides them. */
  readonly instance: GatewayInstance
}

/** Creates a gateway's children, one kind per step, and waits until those with a lifecycle of their own are ready. */
export function creating(collections: Collections, parts: CreatingParts): Handler<'Created', ApiGateway> {
  const { baseDomain, regions, instance } = parts
  const steps: Readonly<Record<string, Kind>> = {
    stage: createStage(regions ? 'placement' : 'domain'),
    domain: createDomain(baseDomain),
    children: awaitChildren,
    ...(regions && {
      placement: settlePlacement(regions),
      namespace: createNamespace(regions),
      instance: createInstance(instance),
      domain: createPlacedDomain(regions),
    }),
  }
  return inGateway(collections, (gateway, doc, step) => (steps[step.name ?? ''] ?? createDatabase)(gateway, doc, step))
}

/**
 * Reserves the gatewayId, which is the `_id` of the database's document: it is created first and deleted last, so no other gateway can have
 * that gatewayId in between.
 */
const createDatabase: Kind = async (gateway, _doc, step) => {
  if (gateway.idProblem) return step.park(gateway.idProblem)
  const child = { _id: gateway.gatewayId, gateway: gateway.id, phase: 'Creating' }
  const creation = await gateway.create('gatewayDatabase', child)
  const owner = await gateway.otherOwner()
  if (owner !== undefined)
    return step.park(`gatewayId ${idText(gateway.gatewayId)} belongs to ApiGateway ${idText(owner)}`)
  if (typeof creation === 'object') return step.park(belongsTo('gatewayDatabase', gateway, creation))
  if (creation === 'leaving') return step.wait('the database of an earlier gateway to be gone', { on: 'removal' })
  return step.again({ step: 'stage' })
}

function createStage(next: string): Kind {
  return async (gateway, _doc, step) => {
    const { gatewayId } = gateway
    await gateway.create('stage', { _id: { gatewayId, name: DEFAULT_STAGE }, name: DEFAULT_STAGE })
    return step.again({ step: next })
  }
}

/** Decides on the region and the namespace, before any object is created there. */
function settlePlacement(regions: RegionSource): Kind {
  return async ({ gatewayId }, doc, step) => {
    let placed: GatewayPlacement | null | undefined = doc.placed
    if (!placed) {
      const region = await regions.of(doc.region)
      const namespace = region.namespaceFor({ gatewayId })
      placed = { region: region.name, namespace, ownNamespace: region.createNamespace }
    }
    return step.again({ step: placed.ownNamespace ? 'namespace' : 'instance', set: { placed } })
  }
}

function createNamespace(regions: RegionSource): Kind {
  return async (gateway, doc, step) => {
    if (!doc.placed) return step.again({ step: 'placement' })
    const { cluster, ref } = await namespaceOf(regions, doc.placed, gateway, doc, step)
    await cluster.ensure(ref)
    return step.again({ step: 'instance' })
  }
}

/** Creates the instance, which rests until the gateway is started. */
function createInstance(defaults: GatewayInstance): Kind {
  return async (gateway, doc, step) => {
    if (!doc.placed) return step.again({ step: 'placement' })
    const { region } = doc.placed
    const fields = { ...defaults, ...doc.instance, region, state: 'Stopped', phase: 'Stopped' }
    return createOwn('instance', 'instance', fields, 'domain', gateway, step)
  }
}

/** Creates the domain. It reserves its name and requests its certificate immediately, and is served once the gateway is started. */
function createPlacedDomain(regions: RegionSource): Kind {
  return async (gateway, doc, step) => {
    if (!doc.placed) return step.again({ step: 'placement' })
    const { region } = doc.placed
    const host = hostNameFor(gateway.gatewayId, doc.name, (await regions.of(region)).gateway.domain)
    const custom = doc.customDomain != null && { customDomain: doc.customDomain }
    const fields = { host, ...custom, region, state: 'Stopped', phase: 'Creating' }
    return createOwn('runtimeDomain', 'runtime domain', fields, 'children', gateway, step)
  }
}

function createDomain(baseDomain: string): Kind {
  return (gateway, doc, step) => {
    const host = doc.customDomain ?? hostNameFor(gateway.gatewayId, doc.name, baseDomain)
    return createOwn('runtimeDomain', 'runtime domain', { host, phase: 'Creating' }, 'children', gateway, step)
  }
}

/** Creates the child that has the gateway's own id, and goes on with the next kind. */
async function createOwn(
  kind: ChildKind,
  what: string,
  fields: Document,
  next: string,
  gateway: HeldGateway,
  step: Step<'Created', ApiGateway>,
): ReturnType<Kind> {
  const creation = await gateway.create(kind, { ...fields, _id: gateway.gatewayId, gateway: gateway.id })
  if (creation === 'leaving') return step.wait(`the ${what} of an earlier gateway to be gone`, { on: 'removal' })
  return creation === 'there' ? step.again({ step: next }) : step.park(belongsTo(kind, gateway, creation))
}

const belongsTo = (kind: ChildKind, gateway: HeldGateway, owner: { readonly belongsTo: unknown }): string =>
  `${collectionOf(kind)} ${idText(gateway.gatewayId)} belongs to the gateway ${idText(owner.belongsTo)}`

/** The phases that children must have reached before the gateway is started. */
const READY: Readonly<Record<LivingKind, readonly string[]>> = {
  gatewayDatabase: ['Created'],
  instance: ['Stopped', 'Started'],
  runtimeDomain: ['Created', 'Stopped'],
}

const awaitChildren: Kind = async (gateway, doc, step) => {
  const { collections, gatewayId } = gateway
  const kinds = ['gatewayDatabase', ...(doc.placed ? (['instance'] as const) : []), 'runtimeDomain'] as const
  const found = await Promise.all(
    kinds.map((kind) => collections.of(kind).findOne({ _id: { $eq: gatewayId as never } })),
  )
  for (const [n, kind] of kinds.entries()) {
    const child = found[n]
    // It was removed: create it again.
    if (!child) return step.again({ step: 'database' })
    if (!READY[kind].includes(child['phase'])) return gateway.await(step, child, { kind, phases: READY[kind] })
  }
  const database = found[0]?.['database'] ?? databaseNameFor(gatewayId)
  const host = reservedFor({ reservedHost: found.at(-1)?.['reservedHost'] })
  return step.moveTo('Created', { set: { database, ...(host !== undefined && { host }) } })
}
