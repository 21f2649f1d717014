import type { BackendService, RuntimeDomain } from './documents.js'

/** The backend that a gateway's instance provides for its domains. */
export interface DomainBackend {
  /** The `_id` of its Region; undefined: the default region. */
  readonly region: string | undefined
  /** Undefined: the instance has no ports. */
  readonly service: BackendService | undefined
}

/** The view that a runtime domain has of the gateways that domains belong to. */
export interface Gateways {
  /** True if the gateway that created this domain is gone or being deleted: it will no longer delete the domain. */
  isOrphan(doc: Readonly<RuntimeDomain>): Promise<boolean>
  /** The fence of its gateway if that is started or starting, so that the domain's Route is to be active. */
  servingFence(doc: Readonly<RuntimeDomain>): Promise<number | undefined>
  /** True if it has a gateway that isn't started: a domain that joins such a gateway is served once that starts. */
  isAtRest(doc: Readonly<RuntimeDomain>): Promise<boolean>
  /** The region and Service of its gateway's instance, for a domain that names none itself. */
  instanceOf(doc: Readonly<RuntimeDomain>): Promise<DomainBackend | undefined>
}
