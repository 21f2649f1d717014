/** The collections of this task kind. */
export const COLLECTIONS = {
  gateway: 'ApiGateway',
  trigger: 'CronTrigger',
  function: 'CloudFunction',
  stage: 'Stage',
  runtimeDomain: 'RuntimeDomain',
  gatewayDatabase: 'GatewayDatabase',
  route: 'Route',
} as const

/** What a gateway's owner wants. Without one it rests in Created. */
export type GatewayState = 'Running' | 'Stopped' | 'Deleted'

/** Of Phaselock's own fields, those that these handlers read: the phase, and the token of the step that runs. */
interface LifecycleFields {
  readonly phase?: string
  readonly lockedBy?: string
}

/**
 * `gatewayId` and `gatewayFence` are how children belong to their gateway. The fence is that of the gateway's step that
 * wrote them last: a step with a lower one changes nothing any more.
 */
interface ChildFields {
  readonly gatewayId: unknown
  readonly gatewayFence?: number
}

/** A gateway. A writer needs only `{ phase: 'Creating' }`. */
export interface ApiGateway extends LifecycleFields {
  readonly _id: unknown
  readonly state?: GatewayState
  /** What children refer to it by. Default: its `_id`. Unique, and not changed while the gateway lives. */
  readonly gatewayId?: unknown
  /** The first label of its host name. Default: made of its gatewayId. */
  readonly name?: string
  /** Its whole host name, instead of `<name>.<base domain>`. */
  readonly customDomain?: string
  /** Set when Created: the name of its own MongoDB database. */
  readonly database?: string
  /** Set when Created: the host name of its runtime domain. */
  readonly host?: string
}

/** Calls a function by the clock while `active`; written by the gateway's owner, without `active` it is suspended. */
export interface CronTrigger extends ChildFields {
  readonly _id: unknown
  readonly cron?: string
  readonly function?: string
  readonly active?: boolean
}

export interface CloudFunction extends ChildFields {
  readonly _id: unknown
  readonly name?: string
  readonly source?: string
}

export interface Stage extends ChildFields {
  readonly _id: unknown
  readonly name: string
  readonly createdAt?: Date
}

/** A host name of a gateway; a lifecycle of its own. Owners may add more than the one that a gateway makes. */
export interface RuntimeDomain extends ChildFields, LifecycleFields {
  readonly _id: unknown
  readonly state?: 'Deleted'
  /** The `_id` of the gateway that made it; a domain inserted by hand has none. */
  readonly gateway?: unknown
  readonly host: string
  /** Unique over all runtime domains: who has it may write the host's routing record. */
  readonly reservedHost?: string | null
}

/** A gateway's own MongoDB database; a lifecycle of its own. Its `_id` is the gatewayId, which it so reserves. */
export interface GatewayDatabase extends ChildFields, LifecycleFields {
  readonly _id: unknown
  readonly state?: 'Deleted'
  readonly gateway?: unknown
  /** Set when Created: the database's name. */
  readonly database?: string
}

/** The routing record that a gateway process reads: requests for this host go to that gateway, while active. */
export interface Route extends ChildFields {
  /** The host name. */
  readonly _id: string
  readonly active: boolean
  /** The `_id` of its runtime domain. */
  readonly domainId: unknown
  /** The fence of the runtime domain's step that wrote it. */
  readonly domainFence: number
}
