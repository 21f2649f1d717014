import { DOMAIN_COLLECTIONS } from './runtime-domain/documents.js'

/** The collections of this task kind. Gateways with regions have an instance too. */
export const COLLECTIONS = {
  gateway: 'ApiGateway',
  trigger: 'CronTrigger',
  function: 'CloudFunction',
  stage: 'Stage',
  runtimeDomain: DOMAIN_COLLECTIONS.runtimeDomain,
  gatewayDatabase: 'GatewayDatabase',
  route: DOMAIN_COLLECTIONS.route,
} as const

/** Where the instances of gateways with regions are. */
export const INSTANCE_COLLECTION = 'Instance'

/** What a gateway's owner wants. Without a state it rests in Created. */
export type GatewayState = 'Running' | 'Stopped' | 'Deleted'

/** Those of Phaselock's own fields that these handlers read: the phase, and the token of the step that is running. */
interface LifecycleFields {
  readonly phase?: string
  readonly lockedBy?: string
}

/**
 * `gatewayId` and `gatewayFence` link children to their gateway. The fence is that of the gateway's step that
 * wrote them last: a step with a lower one can no longer change anything.
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
  /** The first label of its host name. Default: made from its gatewayId. */
  readonly name?: string
  /** Its whole host name, instead of `<name>.<base domain>`. */
  readonly customDomain?: string
  /** With regions: the `_id` of its Region. Once placed, it stays. */
  readonly region?: string
  /** With regions: what its instance runs, overriding the lifecycle's options. Read once, when the instance is made. */
  readonly instance?: GatewayInstance
  /** Set by Phaselock while Creating: where its instance and domains are. */
  readonly placed?: GatewayPlacement | null
  /** Set when Created: the name of its own MongoDB database. */
  readonly database?: string
  /** Set when Created: the host name of its runtime domain. */
  readonly host?: string
}

/**
 * An owner's settings for the instance of a gateway: fields of the documents of the lifecycle that runs it, for example `image` and
 * `replicas`. Domains send their requests to the first of its ports.
 */
export interface GatewayInstance {
  readonly ports?: readonly { readonly port: number }[]
  readonly [field: string]: unknown
}

export interface GatewayPlacement {
  readonly region: string
  readonly namespace: string
  /** Whether the namespace was made for this gateway, and goes with it. */
  readonly ownNamespace: boolean
}

/** Calls a function on a schedule while `active`; written by the gateway's owner, without `active` it is suspended. */
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

/** A gateway's own MongoDB database; a lifecycle of its own. Its `_id` is the gatewayId, which is thereby reserved. */
export interface GatewayDatabase extends ChildFields, LifecycleFields {
  readonly _id: unknown
  readonly state?: 'Deleted'
  readonly gateway?: unknown
  /** Set when Created: the database's name. */
  readonly database?: string
}
