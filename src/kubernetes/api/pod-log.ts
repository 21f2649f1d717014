import type { ApiServer } from './api-server.js'

/** Selects a container's log, and how much of it to read. */
export interface PodLogOptions {
  /** The pod's namespace. */
  readonly namespace: string
  /** The pod's name. */
  readonly pod: string
  /** Default: the pod's only container; required for a pod with several. */
  readonly container?: string | undefined
  /** The number of lines to read from the end. */
  readonly lines: number
  /** At most this many bytes, counted from the first of these lines. */
  readonly limitBytes: number
  /** Ends the request; the call throws its reason. */
  readonly signal?: AbortSignal | undefined
}

/**
 * The last lines that a container wrote, as kept by its node. Undefined: there is no such pod.
 * @throws Unavailable, also if the pod's node can't be reached
 * @throws InvalidResource if there is nothing to read yet because the container hasn't run
 */
export function podLog(cluster: ApiServer, options: PodLogOptions): Promise<string | undefined> {
  const { namespace, pod, container, lines, limitBytes, signal } = options
  const ref = { apiVersion: 'v1', kind: 'Pod', metadata: { name: pod, namespace } }
  return cluster.text(ref, 'log', { container, tailLines: lines, limitBytes }, { signal })
}
