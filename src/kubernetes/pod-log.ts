import type { ApiServer } from './api-server.js'

export interface PodLogOptions {
  readonly namespace: string
  readonly pod: string
  readonly container?: string | undefined
  /** The last lines. */
  readonly lines: number
  /** At most this many bytes, counted from the first of these lines. */
  readonly limitBytes: number
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
