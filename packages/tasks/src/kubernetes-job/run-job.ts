import { createHash } from 'node:crypto'
import type { Step } from 'phaselock'
import { ANNOTATIONS, type HeldCluster, LABELS } from 'phaselock/kubernetes'
import type { PodSecurity } from '../pods/index.js'
import { checkJob } from './check-job.js'
import type { JobFields } from './documents.js'
import { type JobLook, lookAt, madeBefore, removeJobs } from './look.js'
import { JOB, jobManifest } from './manifest.js'

/** The program that a step runs in a Job. */
export interface StepJob extends JobFields {
  readonly namespace: string
  /** Default `baseline`. */
  readonly podSecurity?: PodSecurity
  /** Distinguishes several Jobs of one step. */
  readonly key?: string
}

/** A Job that can't be created as described. */
export class InvalidJob extends Error {
  override readonly name = 'InvalidJob'
}

/** The part of a step that its Job needs. */
export type JobStep = Pick<Step<string, never>, 'name' | 'fence' | 'signal' | 'leaseLeftMs' | 'progress'>

const NAME_LENGTH = 40

/**
 * Runs a program in a Kubernetes Job as a step of any handler: creates the Job, or finds the one that this step has created before, and
 * reports its progress. A handler waits while it is pending, and lets an outcome record the result; the next step calls
 * `removeJobs`:
 *
 * ```ts
 * if (step.name === 'built') {
 *   const removal = await removeJobs(cluster, namespace)
 *   return removal.done ? step.moveTo('Created') : step.wait(removal.text)
 * }
 * const job = await runJob(cluster, step, { namespace, image: 'builder:3', args: [doc.source] })
 * if (job.kind === 'pending') return step.wait(job.reason)
 * if (job.kind === 'failed') return step.park(job.result.reason ?? 'the build failed')
 * return step.again({ step: 'built', set: { built: job.result.log } })
 * ```
 *
 * The Job's name is derived from the document, the step's name and `key`, so a step that is repeated after a crash finds its Job and
 * never creates a second one. A Job left over from an earlier stay in the phase is removed first. If a Job is removed by others while
 * the step waits for it, it is created again.
 * @throws InvalidJob before any object is created
 * @throws the errors of HeldCluster.ensure
 */
export async function runJob(cluster: HeldCluster, step: JobStep, job: StepJob): Promise<JobLook> {
  const { namespace, podSecurity = 'baseline', key = '' } = job
  const checked = checkJob(job)
  if ('problem' in checked) throw new InvalidJob(checked.problem)
  const name = nameOf(cluster, step, key)
  const live = await cluster.get({ ...JOB, metadata: { name, namespace } })
  // If another owner's Job has that name, `ensure` reports the owner.
  if (!live || !cluster.owner.owns(live)) {
    await cluster.ensure(jobManifest(checked.spec, { name, namespace, security: podSecurity }))
    return waiting(`Job ${name} to begin`)
  }
  if (live.metadata.deletionTimestamp !== undefined || madeBefore(live, step.progress.since)) {
    const removal = await removeJobs(cluster, namespace, name)
    return waiting(removal.done ? `Job ${name} to be created again` : removal.text)
  }
  return lookAt(cluster, step, live, checked.spec.logLines)
}

const waiting = (reason: string): JobLook => ({ kind: 'pending', reason, trouble: null })

function nameOf({ owner }: HeldCluster, step: JobStep, key: string): string {
  const parts = [
    owner.annotations[ANNOTATIONS.database],
    owner.labels[LABELS.lifecycle],
    owner.id,
    step.name ?? '',
    key,
  ]
  const hash = createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 16)
  const forPeople = `${owner.labels[LABELS.lifecycle]}-${owner.labels[LABELS.document]}`
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, NAME_LENGTH)
    .replace(/^-+|-+$/g, '')
  return `${forPeople || 'job'}-${hash}`
}
