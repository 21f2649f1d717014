import {
  fenceOf,
  type HeldCluster,
  KubernetesForbidden,
  type KubernetesObject,
  LABELS,
  type Removal,
} from 'phaselock/kubernetes'
import type { RunningStep } from 'phaselock/tasks'
import { creationTrouble, podTrouble, type Trouble } from '../pods/index.js'
import { collect, podsOf } from './collect.js'
import type { JobResult } from './documents.js'
import { endOf, statusOf } from './job-end.js'
import { JOB, JOB_LABEL, POD } from './manifest.js'

/** The progress of a Job. `reason` is for `step.wait`; `trouble` is the part of it that explains why its pod doesn't run. */
export type JobLook =
  | { readonly kind: 'pending'; readonly reason: string; readonly trouble: string | null }
  | { readonly kind: 'succeeded'; readonly result: JobResult }
  | { readonly kind: 'failed'; readonly result: JobResult }

/** Judges an existing Job, and collects its results once it has ended. */
export async function lookAt(
  cluster: HeldCluster,
  step: RunningStep,
  job: KubernetesObject,
  logLines: number,
): Promise<JobLook> {
  const end = endOf(job)
  if (!end) return pending(cluster, job)
  const result = await collect(cluster, step, job, logLines)
  return { kind: end.succeeded ? 'succeeded' : 'failed', result }
}

async function pending(cluster: HeldCluster, job: KubernetesObject): Promise<JobLook> {
  const { active = 0, ready = 0, failed = 0 } = statusOf(job)
  const about = `Job ${job.metadata.name}`
  const retried = failed === 0 ? '' : `, ${failed} failed before`
  if (ready > 0) return { kind: 'pending', reason: `${about} to end: its pod runs${retried}`, trouble: null }
  const trouble = podTrouble(await podsOf(cluster, job)) ?? (await cannotMakePods(cluster, job))
  const state = active > 0 ? 'its pod does not run yet' : 'it has no pod yet'
  const words = `${about} to end: ${state}${retried}`
  return {
    kind: 'pending',
    reason: trouble ? `${trouble.message} (${words})` : words,
    trouble: trouble?.message ?? null,
  }
}

const EVENT = { apiVersion: 'v1', kind: 'Event' } as const

interface EventFields {
  readonly message?: string
  readonly lastTimestamp?: string | null
}

/** Finds the reason why there is no pod. A Job itself doesn't report a quota that leaves no room for its pod: only an event does. */
async function cannotMakePods(cluster: HeldCluster, job: KubernetesObject): Promise<Trouble | undefined> {
  if ((statusOf(job).active ?? 0) > 0) return undefined
  const { namespace, uid } = job.metadata
  const fields = `involvedObject.uid=${uid},reason=FailedCreate`
  try {
    const events = (await cluster.list(EVENT, { namespace, fields, limit: 50 })) as EventFields[]
    const last = events.sort((a, b) => ((a.lastTimestamp ?? '') < (b.lastTimestamp ?? '') ? -1 : 1)).at(-1)
    return last && creationTrouble(last.message ?? '')
  } catch (error) {
    // Only a hint for users: nothing depends on it.
    if (error instanceof KubernetesForbidden) return undefined
    throw error
  }
}

/**
 * Removes a document's Jobs with their pods. Repeat it until all are gone.
 * @param name removes only the Job with that name
 */
export async function removeJobs(cluster: HeldCluster, namespace: string, name?: string): Promise<Removal> {
  const { labels } = cluster.owner
  const ours = [LABELS.lifecycle, LABELS.document].map((label) => `${label}=${labels[label]}`).join(',')
  const jobs = (await cluster.list(JOB, { namespace, labels: ours })).filter((job) => cluster.owner.owns(job))
  const reasons: string[] = []
  for (const job of jobs) {
    if (name !== undefined && job.metadata.name !== name) continue
    const removal = await cluster.remove(job, { propagation: 'Foreground' })
    if (!removal.done) reasons.push(await whatIsLeft(cluster, job, removal.text))
  }
  return { done: reasons.length === 0, text: reasons.join('; ') || 'no Job is left' }
}

async function whatIsLeft(cluster: HeldCluster, job: KubernetesObject, reason: string): Promise<string> {
  const { namespace, name } = job.metadata
  const pods = await cluster.list(POD, { namespace, labels: `${JOB_LABEL}=${name}`, limit: 5 })
  return pods.length === 0 ? reason : `${reason}, with ${pods.map((pod) => `pod ${pod.metadata.name}`).join(', ')}`
}

/** True if a Job was created before this moment of the database's clock: fences begin with the time of their grant. */
export function madeBefore(job: KubernetesObject, since: Date | undefined): boolean {
  return since !== undefined && fenceOf(job) < since.getTime() * 1_000
}
