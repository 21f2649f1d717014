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

/** The collection of the instances of gateways with regions. */
export const INSTANCE_COLLECTION = 'Instance'

/** The state that a gateway's owner wants. Without a state it rests in Created. */
export type GatewayState = 'Running' | 'Stopped' | 'Deleted'

/** Phaselock's own fields that these handlers read: the phase, and the token of the running step. */
interface LifecycleFields {
  /** Written by Phaselock, except on insert. */
  readonly phase?: string
  /** Written by Phaselock; absent while no replica holds it. */
  readonly lockedBy?: string
}

/**
 * Links of a child to its gateway. The fence is that of the gateway's step that last wrote the child: a step with a lower one
 * can no longer change it.
 */
interface ChildFields {
  /** The gatewayId of its gateway. */
  readonly gatewayId: unknown
  /** Absent if the owner wrote it, and no step since. */
  readonly gatewayFence?: number
}

/** A gateway. A writer needs only `{ phase: 'Creating' }`. */
export interface ApiGateway extends LifecycleFields {
  /** Of any type; MongoDB generates an ObjectId. */
  readonly _id: unknown
  /** Absent: it rests in Created. */
  readonly state?: GatewayState
  /** The id that its children refer to. Default: its `_id`. Unique, and not changed while the gateway lives. */
  readonly gatewayId?: unknown
  /** The first label of its host name. Default: derived from its gatewayId. */
  readonly name?: string
  /** Its whole host name, instead of `<name>.<base domain>`. */
  readonly customDomain?: string
  /** With regions: the `_id` of its Region. Once placed, it stays. */
  readonly region?: string
  /** With regions: settings of its instance, overriding the lifecycle's options. Read once, when the instance is created. */
  readonly instance?: GatewayInstance
  /** Set by Phaselock while Creating: the place of its instance and domains. */
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

/** The cluster of a gateway's instance and domains, and the place in it. */
export interface GatewayPlacement {
  /** The `_id` of its Region. */
  readonly region: string
  /** The namespace in that region's cluster. */
  readonly namespace: string
  /** True if the namespace was created for this gateway, and goes with it. */
  readonly ownNamespace: boolean
}

/** Calls a function on a schedule while `active`; written by the gateway's owner, without `active` it is suspended. */
export interface CronTrigger extends ChildFields {
  /** Of any type; MongoDB generates an ObjectId. */
  readonly _id: unknown
  /** The time of the calls, as a cron expression; read by the program that runs the functions, not by Phaselock. */
  readonly cron?: string
  /** The name of the function to call. */
  readonly function?: string
  /** Set by the gateway's Starting and Stopping. */
  readonly active?: boolean
}

/** A function of a gateway, written by its owner; removed with the gateway. */
export interface CloudFunction extends ChildFields {
  /** Of any type; MongoDB generates an ObjectId. */
  readonly _id: unknown
  /** The name that triggers and routes call it by. */
  readonly name?: string
  /** Its code, for the program that runs the functions. */
  readonly source?: string
}

/** A stage of a gateway; each has one, `default`, from its Creating on. */
export interface Stage extends ChildFields {
  /** `{ gatewayId, name: 'default' }` for the one that Phaselock creates. */
  readonly _id: unknown
  /** The owner's name for it. */
  readonly name: string
  /** The time of its creation, by the database's clock. */
  readonly createdAt?: Date
}

/** A gateway's own MongoDB database; a lifecycle of its own. Its `_id` is the gatewayId, which this reserves. */
export interface GatewayDatabase extends ChildFields, LifecycleFields {
  /** The gatewayId. */
  readonly _id: unknown
  /** Set by its gateway when the gateway is deleted. */
  readonly state?: 'Deleted'
  /** The `_id` of the gateway that created it. */
  readonly gateway?: unknown
  /** Set when Created: the database's name. */
  readonly database?: string
}
