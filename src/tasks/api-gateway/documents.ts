import { DOMAIN_COLLECTIONS } from '../runtime-domain/documents.js'

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
  /** Written by Phaselock, except on insert. */
  readonly phase?: string
  /** Written by Phaselock; absent while nobody holds it. */
  readonly lockedBy?: string
}

/**
 * `gatewayId` and `gatewayFence` link children to their gateway. The fence is that of the gateway's step that
 * wrote them last: a step with a lower one can no longer change anything.
 */
interface ChildFields {
  /** That of the gateway it belongs to. */
  readonly gatewayId: unknown
  /** Absent where the owner wrote it, and no step since. */
  readonly gatewayFence?: number
}

/** A gateway. A writer needs only `{ phase: 'Creating' }`. */
export interface ApiGateway extends LifecycleFields {
  /** Of any type; MongoDB makes an ObjectId. */
  readonly _id: unknown
  /** Absent: it rests in Created. */
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
  /** Numbers from 1 to 65535. Default: those of `instance` in the lifecycles' options. */
  readonly ports?: readonly { readonly port: number }[]
  readonly [field: string]: unknown
}

/** Where in which cluster a gateway's instance and domains are. */
export interface GatewayPlacement {
  /** The `_id` of its Region. */
  readonly region: string
  /** The namespace in that region's cluster. */
  readonly namespace: string
  /** Whether the namespace was made for this gateway, and goes with it. */
  readonly ownNamespace: boolean
}

/** Calls a function on a schedule while `active`; written by the gateway's owner, without `active` it is suspended. */
export interface CronTrigger extends ChildFields {
  /** Of any type; MongoDB makes an ObjectId. */
  readonly _id: unknown
  /** When to call, as a cron expression; read by whatever runs the functions, not by Phaselock. */
  readonly cron?: string
  /** The name of the function to call. */
  readonly function?: string
  /** Set by the gateway's Starting and Stopping. */
  readonly active?: boolean
}

/** A function of a gateway, written by its owner; removed with the gateway. */
export interface CloudFunction extends ChildFields {
  /** Of any type; MongoDB makes an ObjectId. */
  readonly _id: unknown
  /** What triggers and routes call it by. */
  readonly name?: string
  /** Its code, for whatever runs the functions. */
  readonly source?: string
}

/** A stage of a gateway; each has one, `default`, from its Creating on. */
export interface Stage extends ChildFields {
  /** `{ gatewayId, name: 'default' }` for the one that Phaselock makes. */
  readonly _id: unknown
  /** What the owner calls it. */
  readonly name: string
  /** When it was made, by the database's clock. */
  readonly createdAt?: Date
}

/** A gateway's own MongoDB database; a lifecycle of its own. Its `_id` is the gatewayId, which is thereby reserved. */
export interface GatewayDatabase extends ChildFields, LifecycleFields {
  /** The gatewayId. */
  readonly _id: unknown
  /** Set by its gateway when that is deleted. */
  readonly state?: 'Deleted'
  /** The `_id` of the gateway that made it. */
  readonly gateway?: unknown
  /** Set when Created: the database's name. */
  readonly database?: string
}
