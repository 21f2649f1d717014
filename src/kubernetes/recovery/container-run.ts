import type { KubernetesObject } from '../api/objects.js'

/** One run of one container: the pod, and the start of the container within it. */
export interface ContainerRun {
  readonly namespace: string
  readonly pod: string
  readonly uid: string
  readonly container: string
  /** The number of restarts of the container when this run began. */
  readonly restarts: number
  /** The time at which this run began, according to the API server. */
  readonly startedAt: string
}

interface ContainerState {
  readonly running?: { readonly startedAt?: string }
  readonly terminated?: { readonly startedAt?: string; readonly reason?: string }
}

interface PodStatus {
  readonly phase?: string
  readonly reason?: string
  readonly containerStatuses?: readonly {
    readonly name: string
    readonly restartCount?: number
    readonly state?: ContainerState
    readonly lastState?: ContainerState
  }[]
}

/** The kubelet no longer finds the container, and doesn't know how it ended. */
const UNKNOWN_END = 'ContainerStatusUnknown'

/** The part of a pod that shows which runs of its containers have ended. */
export interface PodRuns {
  readonly uid: string
  /** True if the node hasn't been heard from for a while: the statuses of its containers are old. */
  readonly isLost: boolean
  readonly containers: readonly {
    readonly name: string
    readonly restarts: number
    /** The start times of the runs that are known to have ended. */
    readonly ended: readonly string[]
  }[]
}

export function runsOf(pod: KubernetesObject): PodRuns {
  const { phase, reason, containerStatuses = [] } = (pod['status'] ?? {}) as PodStatus
  return {
    uid: pod.metadata.uid ?? '',
    isLost: reason === 'NodeLost' || phase === 'Unknown',
    containers: containerStatuses.map(({ name, restartCount = 0, state, lastState }) => ({
      name,
      restarts: restartCount,
      ended: [state?.terminated, lastState?.terminated].flatMap((end) =>
        end?.startedAt !== undefined && end.reason !== UNKNOWN_END ? [end.startedAt] : [],
      ),
    })),
  }
}

/**
 * True if the kubelet has reported the end of this very run: it lists it among the ended ones, or has started the container
 * again since. The pod's phase alone proves nothing: controllers write it too, for nodes that haven't been heard from.
 */
export function hasEnded(run: ContainerRun, { uid, isLost, containers }: PodRuns): boolean {
  if (uid !== run.uid || isLost) return false
  const now = containers.find(({ name }) => name === run.container)
  return now !== undefined && (now.restarts > run.restarts || now.ended.includes(run.startedAt))
}

/**
 * The current run of a container; undefined while none is reported as running.
 * @param container undefined: the pod's only one
 */
export function presentRun(pod: KubernetesObject, container: string | undefined): ContainerRun | undefined {
  const { containerStatuses = [] } = (pod['status'] ?? {}) as PodStatus
  const found = containerStatuses.filter(({ name }) => container === undefined || name === container)
  const [status] = found
  const startedAt = status?.state?.running?.startedAt
  if (!status || found.length > 1 || startedAt === undefined) return undefined
  const { name, namespace = '', uid = '' } = pod.metadata
  return { namespace, pod: name, uid, container: status.name, restarts: status.restartCount ?? 0, startedAt }
}
