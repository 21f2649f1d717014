import type { ApiServer } from './api-server.js'

/** Which container's log, and how much of it. */
export interface PodLogOptions {
  /** The pod's namespace. */
  readonly namespace: string
  /** The pod's name. */
  readonly pod: string
  /** Default: the pod's only one; a pod with several needs it. */
  readonly container?: string | undefined
  /** The last lines. */
  readonly lines: number
  /** At most this many bytes, counted from the first of these lines. */
  readonly limitBytes: number
  /** Ends the request; the call throws its reason. */
  readonly signal?: AbortSignal | undefined
}

/**
 * The last lines that a container wrote, as kept by its node. Undefined: there is no such pod.
 * @throws Unavailable, also when the pod's node can't be asked
 * @throws InvalidResource when there is nothing to read yet: the container hasn't run
 */
export function podLog(cluster: ApiServer, options: PodLogOptions): Promise<string | undefined> {
  const { namespace, pod, container, lines, limitBytes, signal } = options
  const ref = { apiVersion: 'v1', kind: 'Pod', metadata: { name: pod, namespace } }
  return cluster.text(ref, 'log', { container, tailLines: lines, limitBytes }, { signal })
}
