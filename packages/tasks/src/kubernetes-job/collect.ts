import { setTimeout } from 'node:timers/promises'
import { type HeldCluster, type KubernetesObject, podLog } from 'phaselock/kubernetes'
import type { RunningStep } from 'phaselock/tasks'
import { endedWith, type Pod, type Terminated } from '../pods/index.js'
import type { JobResult } from './documents.js'
import { endOf, statusOf } from './job-end.js'
import { CONTAINER, JOB_LABEL, POD } from './manifest.js'

/** The amount of log to fetch. A limit counts from the first of the requested lines, so it must be larger than the amount kept. */
const FETCHED_BYTES = 1024 * 1024
/** The amount of log to keep, whatever the length of its lines: documents hold 16 MB, and are read often. */
const KEPT_CHARACTERS = 64 * 1024
/** The number of requests to a node that doesn't answer; a result without a log is better than no result. */
const LOG_TRIES = 3
const LOG_PAUSE_MS = 1_000
const POD_LIMIT = 1_000

/** The pods of a Job, the newest first. */
export async function podsOf(cluster: HeldCluster, job: KubernetesObject): Promise<Pod[]> {
  const { name, namespace } = job.metadata
  const labels = `${JOB_LABEL}=${name}`
  const pods = (await cluster.list(POD, { namespace, labels, limit: POD_LIMIT })) as unknown as Pod[]
  const madeAt = ({ metadata }: Pod) => metadata.creationTimestamp ?? ''
  return pods.sort((a, b) => (madeAt(a) < madeAt(b) ? 1 : -1))
}

/** The result of a Job that has ended. @throws the errors of requests to a cluster, except for the log */
export async function collect(
  cluster: HeldCluster,
  step: RunningStep,
  job: KubernetesObject,
  logLines: number,
): Promise<JobResult> {
  const end = endOf(job)
  const { startTime, completionTime, failed = 0 } = statusOf(job)
  const pods = await podsOf(cluster, job)
  const ended = pods.find((pod) => terminatedOf(pod) !== undefined)
  const pod = ended ?? pods[0]
  const terminated = ended && terminatedOf(ended)
  const log = pod && logLines > 0 ? await logOf(cluster, step, job, pod, logLines) : {}
  return {
    exitCode: terminated?.exitCode ?? null,
    reason: end?.succeeded ? null : whyFailed(end?.condition, ended, terminated),
    log: log.text ?? null,
    logError: log.error ?? null,
    pod: pod?.metadata.name ?? null,
    startedAt: dateOf(startTime),
    finishedAt: dateOf(completionTime ?? end?.condition.lastTransitionTime),
    failedPods: failed,
  }
}

function terminatedOf(pod: Pod): Terminated | undefined {
  return pod.status?.containerStatuses?.find(({ name }) => name === CONTAINER)?.state?.terminated
}

function whyFailed(
  condition: { readonly reason?: string; readonly message?: string } | undefined,
  pod: Pod | undefined,
  terminated: Terminated | undefined,
): string {
  const words = [condition?.reason, condition?.message].filter(Boolean).join(': ')
  const last = pod && terminated ? `pod ${pod.metadata.name}: ${endedWith(terminated)}` : ''
  return [words, last].filter((text) => text !== '').join('; ') || 'it failed'
}

async function logOf(
  { cluster }: HeldCluster,
  { signal }: RunningStep,
  job: KubernetesObject,
  pod: Pod,
  lines: number,
): Promise<{ text?: string | undefined; error?: string }> {
  const { namespace = 'default' } = job.metadata
  const about = { namespace, pod: pod.metadata.name, container: CONTAINER, lines, limitBytes: FETCHED_BYTES, signal }
  for (let tried = 1; ; tried += 1) {
    try {
      const text = await podLog(cluster, about)
      return text === undefined
        ? { error: 'neither its pod nor its log is there any more' }
        : { text: text.slice(-KEPT_CHARACTERS) }
    } catch (error) {
      signal.throwIfAborted()
      if (tried >= LOG_TRIES) return { error: error instanceof Error ? error.message : String(error) }
    }
    await setTimeout(LOG_PAUSE_MS, undefined, { signal }).catch(() => undefined)
  }
}

const dateOf = (text: string | undefined): Date | null => (text === undefined ? null : new Date(text))
