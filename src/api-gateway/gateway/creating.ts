import { idText } from '../../kinds/index.js'
import type { RegionSource } from '../../kubernetes/index.js'
import type { Handler } from '../../phases/index.js'
import { type Collections, collectionOf } from '../collections.js'
import type { ApiGateway, GatewayInstance } from '../documents.js'
import { databaseNameFor, hostNameFor } from '../names.js'
import { reservedFor } from '../runtime-domain/index.js'
import { troubleOf } from './child-trouble.js'
import { HeldGateway } from './held-gateway.js'
import { makeNamespace, place, readingAnswers } from './placing.js'

type Creating = Handler<'Created', ApiGateway>
type Kind = (gateway: HeldGateway, ...args: Parameters<Creating>) => ReturnType<Creating>

const DEFAULT_STAGE = 'default'

export interface CreatingParts {
  /** The ending of host names if there are no regions. */
  readonly baseDomain: string
  readonly regions: RegionSource | undefined
  /** What an instance runs unless its gateway says otherwise. */
  readonly instance: GatewayInstance
}

/** Makes a gateway's children, one kind per step, and waits until those with a lifecycle of their own are ready. */
export function creating(collections: Collections, parts: CreatingParts): Creating {
  const { baseDomain, regions, instance } = parts
  const steps: Readonly<Record<string, Kind>> = {
    stage: (gateway, doc, step) => createStage(gateway, doc, step, regions ? 'placement' : 'domain'),
    domain: (gateway, doc, step) => createDomain(baseDomain, gateway, doc, step),
    children: awaitChildren,
    ...(regions && {
      placement: (gateway, doc, step) => settlePlacement(regions, gateway, doc, step),
      namespace: (gateway, doc, step) => createNamespace(regions, gateway, doc, step),
      instance: (gateway, doc, step) => createInstance(instance, gateway, doc, step),
      domain: (gateway, doc, step) => createPlacedDomain(regions, gateway, doc, step),
    }),
  }
  return readingAnswers(async (doc, step) => {
    await collections.ensureIndexes()
    const gateway = new HeldGateway(collections, doc, step)
    const kind = steps[step.name ?? ''] ?? createDatabase
    return kind(gateway, doc, step)
  })
}

/** The `_id` of its document is the gatewayId: it is made first and goes last, so nobody else has that gatewayId meanwhile. */
const createDatabase: Kind = async (gateway, _doc, step) => {
  if (gateway.idProblem) return step.park(gateway.idProblem)
  const creation = await gateway.create('gatewayDatabase', {
    _id: gateway.gatewayId,
    gateway: gateway.id,
    phase: 'Creating',
  })
  const owner = await gateway.otherOwner()
  if (owner !== undefined)
    return step.park(`gatewayId ${idText(gateway.gatewayId)} belongs to ApiGateway ${idText(owner)}`)
  if (typeof creation === 'object') return step.park(belongsTo('GatewayDatabase', gateway, creation))
  if (creation === 'leaving') return step.wait('the database of an earlier gateway to be gone')
  return step.again({ step: 'stage' })
}

async function createStage(
  gateway: HeldGateway,
  _doc: Readonly<ApiGateway>,
  step: Parameters<Creating>[1],
  next: string,
): ReturnType<Creating> {
  const { gatewayId } = gateway
  await gateway.create('stage', { _id: { gatewayId, name: DEFAULT_STAGE }, name: DEFAULT_STAGE })
  return step.again({ step: next })
}

async function settlePlacement(regions: RegionSource, ...[gateway, doc, step]: Parameters<Kind>): ReturnType<Creating> {
  const placed = doc.placed ?? (await place(regions, gateway, doc))
  return step.again({ step: placed.ownNamespace ? 'namespace' : 'instance', set: { placed } })
}

async function createNamespace(regions: RegionSource, ...[gateway, doc, step]: Parameters<Kind>): ReturnType<Creating> {
  if (!doc.placed) return step.again({ step: 'placement' })
  await makeNamespace(regions, gateway, doc, step)
  return step.again({ step: 'instance' })
}

/** It rests until the gateway is started. */
async function createInstance(
  defaults: GatewayInstance,
  ...[gateway, doc, step]: Parameters<Kind>
): ReturnType<Creating> {
  if (!doc.placed) return step.again({ step: 'placement' })
  const creation = await gateway.create('instance', {
    ...defaults,
    ...doc.instance,
    _id: gateway.gatewayId,
    gateway: gateway.id,
    region: doc.placed.region,
    state: 'Stopped',
    phase: 'Stopped',
  })
  if (creation === 'leaving') return step.wait('the instance of an earlier gateway to be gone')
  if (creation !== 'there') return step.park(belongsTo('Instance', gateway, creation))
  return step.again({ step: 'domain' })
}

/** It reserves its name and requests its certificate at once, and is served when the gateway is started. */
async function createPlacedDomain(
  regions: RegionSource,
  ...[gateway, doc, step]: Parameters<Kind>
): ReturnType<Creating> {
  if (!doc.placed) return step.again({ step: 'placement' })
  const { domain } = (await regions.of(doc.placed.region)).gateway
  const fields = {
    host: hostNameFor(gateway.gatewayId, doc.name, domain),
    ...(doc.customDomain != null && { customDomain: doc.customDomain }),
    region: doc.placed.region,
    state: 'Stopped',
  }
  return insertDomain(fields, gateway, doc, step)
}

function createDomain(baseDomain: string, ...[gateway, doc, step]: Parameters<Kind>): ReturnType<Creating> {
  const host = doc.customDomain ?? hostNameFor(gateway.gatewayId, doc.name, baseDomain)
  return insertDomain({ host }, gateway, doc, step)
}

async function insertDomain(
  fields: { readonly host: string },
  ...[gateway, _doc, step]: Parameters<Kind>
): ReturnType<Creating> {
  const creation = await gateway.create('runtimeDomain', {
    _id: gateway.gatewayId,
    gateway: gateway.id,
    ...fields,
    phase: 'Creating',
  })
  if (creation === 'leaving') return step.wait('the runtime domain of an earlier gateway to be gone')
  if (creation !== 'there') return step.park(belongsTo('RuntimeDomain', gateway, creation))
  return step.again({ step: 'children' })
}

const belongsTo = (collection: string, gateway: HeldGateway, owner: { readonly belongsTo: unknown }): string =>
  `${collection} ${idText(gateway.gatewayId)} belongs to the gateway ${idText(owner.belongsTo)}`

/** The phases of children that are as they should be before the gateway is started. */
const READY: Readonly<Record<'gatewayDatabase' | 'instance' | 'runtimeDomain', readonly string[]>> = {
  gatewayDatabase: ['Created'],
  instance: ['Stopped', 'Started'],
  runtimeDomain: ['Created', 'Stopped'],
}

const awaitChildren: Kind = async (gateway, doc, step) => {
  const { collections, gatewayId } = gateway
  const kinds = ['gatewayDatabase', ...(doc.placed ? (['instance'] as const) : []), 'runtimeDomain'] as const
  const found = await Promise.all(kinds.map((kind) => collections.of(kind).findOne({ _id: gatewayId as never })))
  for (const [n, kind] of kinds.entries()) {
    const child = found[n]
    // Somebody removed it: it is made again.
    if (!child) return step.again({ step: 'database' })
    if (!READY[kind].includes(child['phase'])) return step.wait(troubleOf(collectionOf(kind), child))
  }
  const database = found[0]?.['database'] ?? databaseNameFor(gatewayId)
  const host = reservedFor({ reservedHost: found.at(-1)?.['reservedHost'] })
  return step.moveTo('Created', { set: { database, ...(host !== undefined && { host }) } })
}
