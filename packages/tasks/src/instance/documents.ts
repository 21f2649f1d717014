import type { ContainerFields, Place } from '../pods/index.js'

export const INSTANCE_COLLECTION = 'Instance'

/**
 * What an instance's owner wants. `Restarting` and `Updating` are done once and become `Running` (`Stopped` stays as it is when
 * only an update is wanted).
 */
export type InstanceState = 'Running' | 'Stopped' | 'Restarting' | 'Updating' | 'Deleted'

/** A port of the container, and of the Service in front of its pods. */
export interface InstancePort {
  /** Where the Service listens, 1 to 65535. */
  readonly port: number
  /** Where the container listens. Default: `port`. */
  readonly containerPort?: number
  /** Default `tcp-<port>` or `udp-<port>`. */
  readonly name?: string
  /** Default `TCP`. */
  readonly protocol?: 'TCP' | 'UDP'
}

/** When a pod counts as ready: on an HTTP GET that is answered with 200 to 399, or on a connection if no path is given. */
export interface Readiness {
  readonly port: number
  readonly path?: string
}

/** Those of Phaselock's own fields that these handlers read. */
interface LifecycleFields {
  readonly phase?: string
  readonly lockedBy?: string
}

/** A program that runs in pods, with a Service in front of them. A writer needs `{ phase: 'Starting', image }`. */
export interface Instance extends LifecycleFields, ContainerFields {
  readonly _id: unknown
  readonly state?: InstanceState
  /** How many pods run at once. Default 1; 0 is Started without any. */
  readonly replicas?: number
  /** None: no Service. */
  readonly ports?: readonly InstancePort[]
  readonly readiness?: Readiness
  /** The `_id` of its Region; not changed while the instance lives. */
  readonly region?: string
  /** The gatewayId of its gateway, if it has one; namespace rules use it. */
  readonly gatewayId?: unknown
  /** The `_id` of the gateway that made it; one inserted by hand has none. */
  readonly gateway?: unknown
  /** The fence of the gateway's step that wrote it last. */
  readonly gatewayFence?: number

  /** Set by Phaselock, before anything is made: where its Deployment and its Service are, both with that name. */
  readonly placed?: Place | null
  /** Set by Phaselock: its Service's name in the cluster, `<service>.<namespace>.svc`; null without ports. */
  readonly address?: string | null
  /** Set by Phaselock: what the cluster was last told to run, as a hash of the fields above. */
  readonly applied?: string | null
  /** Set by Phaselock: the fence of the last restart. */
  readonly restarted?: number
  /** Set by Phaselock: what keeps its pods from running, in words; null when nothing does. */
  readonly trouble?: string | null
  /** Set by Phaselock: why it is stopped although its owner didn't ask for it; null when it runs or its owner stopped it. */
  readonly stoppedBecause?: string | null
}
