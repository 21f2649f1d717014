import type { Outcome, Step } from 'phaselock'
import type { PodSecurity, Site } from '../pods/index.js'
import { checkJob, DEFAULT_LOG_LINES } from './check-job.js'
import type { JobResult, KubernetesJob } from './documents.js'
import { endOf } from './job-end.js'
import { lookAt, removeJobs } from './look.js'
import { JOB, jobManifest } from './manifest.js'

type Doc = Readonly<KubernetesJob>
type SiteHandler<Next extends string> = (
  doc: Doc,
  step: Step<Next, KubernetesJob>,
  site: Site,
) => Promise<Outcome<Next, KubernetesJob>>

/**
 * Creates the Job of one run. Its name contains the run's number, which is stored first: a step that is repeated after a crash creates
 * no second Job, and once Running is reached no further one is created.
 */
export function creating(security: PodSecurity): SiteHandler<'Running'> {
  return async (doc, step, { cluster, place }) => {
    const checked = checkJob(doc)
    if ('problem' in checked) return step.park(checked.problem)
    if (step.name !== 'make') {
      // A run that was abandoned half-way may have created its Job.
      const removal = doc.placed ? await removeJobs(cluster, place.namespace) : undefined
      if (removal?.done === false) return step.wait(removal.text, { on: 'removal' })
      const run = (doc.run ?? 0) + 1
      const name = `${baseOf(place.name, doc.run)}-${run}`
      return step.again({ step: 'make', set: { run, placed: { ...place, name }, trouble: null, result: null } })
    }
    await cluster.ensure(jobManifest(checked.spec, { ...place, security }))
    return step.moveTo('Running')
  }
}

/** The base of the stored name, which is the name of the last run's Job. */
function baseOf(name: string, run: number | undefined): string {
  return run !== undefined && name.endsWith(`-${run}`) ? name.slice(0, -`-${run}`.length) : name
}

/** Waits for the end, stores its result, and then removes the Job. */
export const running: SiteHandler<'Succeeded' | 'Failed'> = async (doc, step, { cluster, place }) => {
  const { name, namespace } = place
  if (step.name === 'remove' && doc.result) {
    const removal = await removeJobs(cluster, namespace)
    if (!removal.done) return step.wait(removal.text, { on: 'removal' })
    return step.moveTo(doc.result.reason === null ? 'Succeeded' : 'Failed')
  }
  const job = await cluster.get({ ...JOB, metadata: { name, namespace } })
  if (!job || !cluster.owner.owns(job))
    return recorded(step, lost(`Job ${name} no longer exists: it was removed before its end was seen`))
  // One that ended before its removal still shows how, as long as it exists.
  const isLeaving = job.metadata.deletionTimestamp !== undefined
  if (isLeaving && !endOf(job)) return step.wait(`Job ${name} is being removed`, { on: 'removal' })
  const look = await lookAt(cluster, step, job, logLinesOf(doc))
  if (look.kind !== 'pending') return recorded(step, look.result)
  const set = look.trouble === (doc.trouble ?? null) ? {} : { set: { trouble: look.trouble } }
  return step.wait(look.reason, { on: 'job', ...set })
}

/** The number of log lines to keep. The document may have become invalid since the Job was created; its result is wanted all the same. */
function logLinesOf(doc: Doc): number {
  const checked = checkJob(doc)
  return 'spec' in checked ? checked.spec.logLines : DEFAULT_LOG_LINES
}

const recorded = (step: Step<never, KubernetesJob>, result: JobResult) =>
  step.again({ step: 'remove', set: { result, trouble: null } })

const lost = (reason: string): JobResult => ({
  exitCode: null,
  reason,
  log: null,
  logError: null,
  pod: null,
  startedAt: null,
  finishedAt: null,
  failedPods: 0,
})

export const cancelling: SiteHandler<'Cancelled'> = async (doc, step, { cluster, place }) => {
  const removal = await removeJobs(cluster, place.namespace)
  if (!removal.done) return step.wait(removal.text, { on: 'removal' })
  const result = doc.result ?? lost('cancelled by its owner')
  return step.moveTo('Cancelled', { set: { result, trouble: null } })
}

export const deleting: SiteHandler<'Deleted'> = async (_doc, step, { cluster, place }) => {
  const removal = await removeJobs(cluster, place.namespace)
  return removal.done ? step.moveTo('Deleted', { set: { trouble: null } }) : step.wait(removal.text, { on: 'removal' })
}
