import type { ContainerFields, Place } from '../pods/index.js'

export const INSTANCE_COLLECTION = 'Instance'

/**
 * The state that an instance's owner wants. `Restarting` and `Updating` are done once and become `Running` (`Stopped` stays if
 * only an update is wanted).
 */
export type InstanceState = 'Running' | 'Stopped' | 'Restarting' | 'Updating' | 'Deleted'

/** A port of the container, and of the Service in front of its pods. */
export interface InstancePort {
  /** The port that the Service listens on, 1 to 65535. */
  readonly port: number
  /** The port that the container listens on. Default: `port`. */
  readonly containerPort?: number
  /** Default `tcp-<port>` or `udp-<port>`. */
  readonly name?: string
  /** Default `TCP`. */
  readonly protocol?: 'TCP' | 'UDP'
}

/** The check that makes a pod ready: an HTTP GET answered with 200 to 399, or a connection if no path is given. */
export interface Readiness {
  readonly port: number
  readonly path?: string
}

/** Phaselock's own fields that these handlers read. */
interface LifecycleFields {
  readonly phase?: string
  readonly lockedBy?: string
}

/** A program that runs in pods, with a Service in front of them. A writer needs `{ phase: 'Starting', image }`. */
export interface Instance extends LifecycleFields, ContainerFields {
  readonly _id: unknown
  readonly state?: InstanceState
  /** The number of pods that run at the same time. Default 1; 0 is Started without any. */
  readonly replicas?: number
  /** Empty: no Service. */
  readonly ports?: readonly InstancePort[]
  readonly readiness?: Readiness
  /** The `_id` of its Region; not changed while the instance lives. */
  readonly region?: string
  /** The gatewayId of its gateway, if it has one; namespace rules use it. */
  readonly gatewayId?: unknown
  /** The `_id` of the gateway that created it; absent in one inserted by hand. */
  readonly gateway?: unknown
  /** The fence of the gateway's step that last wrote it. */
  readonly gatewayFence?: number

  /** Set by Phaselock, before any object is created: the place of its Deployment and its Service, both with that name. */
  readonly placed?: Place | null
  /** Set by Phaselock: its Service's name in the cluster, `<service>.<namespace>.svc`; null without ports. */
  readonly address?: string | null
  /** Set by Phaselock: the state last applied to the cluster, as a hash of the fields above. */
  readonly applied?: string | null
  /** Set by Phaselock: the fence of the last restart. */
  readonly restarted?: number
  /** Set by Phaselock: the reason that keeps its pods from running, in words; null if there is no such reason. */
  readonly trouble?: string | null
  /** Set by Phaselock: the reason why it is stopped although its owner didn't request it; null if it runs or its owner stopped it. */
  readonly stoppedBecause?: string | null
}
