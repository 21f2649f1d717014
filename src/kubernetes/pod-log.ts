import type { Cluster } from './cluster.js'

const POD = { apiVersion: 'v1', kind: 'Pod' } as const

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
export async function podLog(cluster: Cluster, options: PodLogOptions): Promise<string | undefined> {
  const { namespace, pod, container, lines, limitBytes, signal } = options
  const query = { container, tailLines: lines, limitBytes }
  const http = { method: 'GET', query } as const
  const log = { verb: 'get', kind: POD, namespace, object: pod, subresource: 'log' }
  const answer = await cluster.answerTo({ ...log, http, signal })
  return answer.status === 404 ? undefined : answer.text
}
