import type { BackendService, RuntimeDomain } from './documents.js'

/** What an instance of a gateway is to its domains. */
export interface DomainBackend {
  /** The `_id` of its Region; undefined: the default region. */
  readonly region: string | undefined
  /** Undefined: it has no ports. */
  readonly service: BackendService | undefined
}

/** What a runtime domain needs to know of the gateways that domains belong to. */
export interface Gateways {
  /** Whether the gateway that made this domain is gone or going: nobody will tell the domain to go then. */
  isOrphan(doc: Readonly<RuntimeDomain>): Promise<boolean>
  /** The fence of its gateway if that is started or starting, so that the domain's Route is to be active. */
  servingFence(doc: Readonly<RuntimeDomain>): Promise<number | undefined>
  /** Whether it has a gateway that isn't started: a domain that joins it is served once that is. */
  isAtRest(doc: Readonly<RuntimeDomain>): Promise<boolean>
  /** The region and Service of its gateway's instance, for a domain that names none itself. */
  instanceOf(doc: Readonly<RuntimeDomain>): Promise<DomainBackend | undefined>
}
