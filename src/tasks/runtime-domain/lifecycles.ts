import { type RegionSource, regionWorks } from '../../kubernetes/index.js'
import type { RunnableLifecycle } from '../../phases/index.js'
import { type BindOptions, type Bound, bindLifecycle, checkBindOptions } from '../kit/index.js'
import { bringingUp } from './creating.js'
import { type RuntimeDomainSettings, runtimeDomainDefinition } from './definition.js'
import { deleting } from './deleting.js'
import { DomainStore } from './domain-store.js'
import type { Gateways } from './gateways.js'
import { CERTIFICATE, INGRESS } from './manifests.js'
import { stopping } from './stopping.js'

export interface RuntimeDomainOptions extends RuntimeDomainSettings, BindOptions {
  /** The regions where domains have their Certificate and Ingress. Default: none; domains then have only their name and their Route. */
  readonly regions?: RegionSource | undefined
  /** The gateways that domains belong to. Default: none; domains are independent. */
  readonly gateways?: Gateways | undefined
  /** True to continue documents as soon as their objects in the cluster change, by a watch on each replica. Default true. */
  readonly watch?: boolean | undefined
}

/** The result of `runtimeDomainLifecycles`. */
export interface RuntimeDomainLifecycles {
  /** Domains: `runtimeDomain.insert({ host: 'shop.example.org', gatewayId: 'shop' })`. Without regions, one without a `gatewayId` is parked. */
  readonly runtimeDomain: Bound<ReturnType<typeof runtimeDomainDefinition>>
  /** The lifecycles for a replica: `new Replica({ db, lifecycles: all })`. */
  readonly all: readonly RunnableLifecycle[]
}

/**
 * The runtime-domain lifecycle with its handlers. See docs/tasks/runtime-domain.md.
 * @throws InvalidOptions without a database; InvalidLifecycle for unknown settings and those out of range
 */
export function runtimeDomainLifecycles(options: RuntimeDomainOptions): RuntimeDomainLifecycles {
  checkBindOptions('runtimeDomainLifecycles', options)
  const { db, regions, gateways, watch = true, wrap, ...settings } = options
  const parts = { store: new DomainStore(db), gateways, regions }
  const bound = runtimeDomainDefinition(settings).handle({
    Creating: bringingUp(parts),
    Updating: bringingUp(parts),
    Stopping: stopping(parts),
    Deleting: deleting(parts),
  })
  const works = regions ? regionWorks(regions, watch ? [CERTIFICATE, INGRESS] : []) : []
  const runtimeDomain = bindLifecycle(bound, { db, wrap, plainNumbers: true }, works)
  return { runtimeDomain, all: [runtimeDomain] }
}
