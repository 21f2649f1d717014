import type { HeldCluster, Region, RegionSource } from '../../kubernetes/index.js'
import { Holder, type Outcome, type Step, Unavailable } from '../../phases/index.js'
import { DOMAIN_COLLECTIONS, type Placement, type RuntimeDomain } from './documents.js'
import type { DomainStore } from './domain-store.js'
import type { Gateways } from './gateways.js'

/** The dependencies of the handlers of runtime domains. */
export interface DomainParts {
  readonly store: DomainStore
  /** Undefined: domains are independent. */
  readonly gateways: Gateways | undefined
  /** Undefined: domains have no Certificate and no Ingress, only their name and their Route. */
  readonly regions: RegionSource | undefined
}

/** A placed domain with its region. */
export interface Site {
  readonly region: Region
  readonly placed: Placement
  readonly cluster: HeldCluster
}

export type Doc = Readonly<RuntimeDomain>
export type AnyStep = Pick<Step<string, RuntimeDomain>, 'fence' | 'signal' | 'leaseLeftMs'>
export type Ended<Next extends string> = Promise<Outcome<Next, RuntimeDomain>>

export const holderOf = ({ store }: DomainParts, doc: Doc, step: AnyStep): Holder =>
  new Holder(store.domains, doc, step)

/**
 * The site where the domain is placed; undefined: it isn't placed.
 * @throws Unavailable if its region can't be used, or if this process knows no regions
 */
export async function siteOf({ regions, store }: DomainParts, doc: Doc, step: AnyStep): Promise<Site | undefined> {
  const { placed } = doc
  if (!placed) return undefined
  if (!regions) throw new Unavailable(`region ${placed.region}: the domain is there, and this process has no regions`)
  const region = await regions.of(placed.region)
  const lifecycle = { name: 'runtime-domain', collection: DOMAIN_COLLECTIONS.runtimeDomain, db: store.db }
  return { region, placed, cluster: region.cluster.hold(doc, step, lifecycle) }
}
