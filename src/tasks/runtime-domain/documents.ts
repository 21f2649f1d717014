export const DOMAIN_COLLECTIONS = { runtimeDomain: 'RuntimeDomain', route: 'Route' } as const

/**
 * The state that a domain's owner wants. Without a state it is served, as with Running. Updating: apply the current host name, service and
 * settings; it then becomes Running.
 */
export type DomainState = 'Running' | 'Stopped' | 'Updating' | 'Deleted'

/** A host name and everything that serves it; a lifecycle of its own. Owners may add more domains than the one that a gateway creates. */
export interface RuntimeDomain {
  /** Of any type; MongoDB generates an ObjectId. */
  readonly _id: unknown
  /** Written by Phaselock, except on insert. */
  readonly phase?: string
  /** Written by Phaselock; absent while no replica holds it. */
  readonly lockedBy?: string
  /** Absent: it is served. */
  readonly state?: DomainState
  /** The owner of the domain: its gateway, or the id that a region's namespace is named after. */
  readonly gatewayId?: unknown
  /** The fence of the gateway's step that last wrote it. */
  readonly gatewayFence?: number
  /** The `_id` of the gateway that created it; a domain inserted by hand has no such field. */
  readonly gateway?: unknown
  /** The host name to serve it under, such as `shop.example.org`. */
  readonly host: string
  /** A host name of the owner's own, used instead of `host`. */
  readonly customDomain?: string | null
  /** The region whose cluster serves it; without one the default region. Once placed, it stays. */
  readonly region?: string
  /** The Service that the Ingress sends requests to; without it the Service of its gateway's instance. */
  readonly service?: BackendService
  /**
   * Phaselock's field, unique over all runtime domains: the domain that has a name here may write its Route and Ingress. While the name changes
   * it is a list: the new name, then the names still to be given up.
   */
  readonly reservedHost?: string | readonly string[] | null
  /** Phaselock's field: the cluster and the place in it, written before any object is created there. */
  readonly placed?: Placement | null
}

/** A Service in the domain's namespace. */
export interface BackendService {
  /** Its `metadata.name`. */
  readonly name: string
  /** The number of its port, 1 to 65535. */
  readonly port: number
}

/** The place of a domain's objects, and their names. */
export interface Placement {
  /** The `_id` of its Region. */
  readonly region: string
  /** The namespace in that region's cluster. */
  readonly namespace: string
  /** The Ingress's name. */
  readonly ingress: string
  /** The name of the reserved host's own Certificate, and of its Secret. Null: no certificate is needed. */
  readonly certificate: string | null
  /** Former certificates, with their Secrets, that are still to be removed. */
  readonly leftover: readonly string[]
}

/** The routing record that a gateway process reads: requests for this host go to that gateway, while active. */
export interface Route {
  /** The host name. */
  readonly _id: string
  /** The gatewayId of the gateway that answers the requests. */
  readonly gatewayId: unknown
  /** The fence of the gateway's step that last switched it; absent before the first. */
  readonly gatewayFence?: number
  /** True if requests are to be let through. */
  readonly active: boolean
  /** The `_id` of its runtime domain. */
  readonly domainId: unknown
  /** The fence of the runtime domain's step that wrote it. */
  readonly domainFence: number
}

/** The host name that its owner wants: the custom one if there is one. */
export const wantedHost = (doc: Pick<RuntimeDomain, 'host' | 'customDomain'>): string => doc.customDomain ?? doc.host

/** The host name that it is being set up for, if it has reserved one. */
export const reservedFor = (doc: Pick<RuntimeDomain, 'reservedHost'>): string | undefined => namesOf(doc)[0]

/** Former names that it has yet to give up. */
export const formerHosts = (doc: Pick<RuntimeDomain, 'reservedHost'>): readonly string[] => namesOf(doc).slice(1)

export function namesOf({ reservedHost }: Pick<RuntimeDomain, 'reservedHost'>): readonly string[] {
  if (typeof reservedHost === 'string') return [reservedHost]
  return Array.isArray(reservedHost) ? reservedHost.filter((name) => typeof name === 'string') : []
}
