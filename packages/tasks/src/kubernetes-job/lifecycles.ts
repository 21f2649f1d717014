import type { RunnableLifecycle } from 'phaselock'
import { onCluster } from 'phaselock/kubernetes'
import { type BindOptions, type Bound, bindLifecycle, objectNameFor } from 'phaselock/tasks'
import { checkPodSecurity, ifPlaced, type PodSecurity, siteOf, type Where, watchOf, whereOf } from '../pods/index.js'
import { type KubernetesJobSettings, kubernetesJobDefinition } from './definition.js'
import { cancelling, creating, deleting, running } from './handlers.js'
import { JOB } from './manifest.js'

export type KubernetesJobOptions = KubernetesJobSettings &
  BindOptions &
  Where & {
    /** The security profile of the pods on their nodes. Default `baseline`. */
    readonly podSecurity?: PodSecurity | undefined
    /** True to continue documents as soon as their objects in the cluster change, by a watch on each replica. Default true. */
    readonly watch?: boolean | undefined
  }

export interface KubernetesJobLifecycles {
  readonly kubernetesJob: Bound<ReturnType<typeof kubernetesJobDefinition>>
  /** The lifecycles for a replica: `new Replica({ db, lifecycles: all })`. */
  readonly all: readonly RunnableLifecycle[]
}

/** The length of the suffix after the id in a Job's name, `-<run>`, and in its pods' names, `-2xjkl`. */
const ENDING = 17

/** The name of a document's Jobs, without the number of the run. */
export const jobNameFor = (id: unknown): string => objectNameFor('job-', id, ENDING)

/**
 * The kubernetes-job lifecycle with its handlers. See docs/tasks/kubernetes-job.md.
 * @throws InvalidLifecycle for unknown settings and those out of range
 */
export function kubernetesJobLifecycles(options: KubernetesJobOptions): KubernetesJobLifecycles {
  const { db, regions, cluster, namespace, podSecurity = 'baseline', watch = true, wrap, ...settings } = options
  checkPodSecurity('kubernetes-job', podSecurity)
  const where = whereOf('kubernetes-job', { regions, cluster, namespace } as Partial<Where>)
  const definition = kubernetesJobDefinition(settings)
  const { name, collection } = definition.model
  const site = siteOf(where, { name, collection, db }, jobNameFor)
  const bound = definition.handle({
    Creating: onCluster(site, creating(podSecurity)),
    Running: onCluster(site, running),
    Cancelling: ifPlaced('Cancelled', onCluster(site, cancelling)),
    Deleting: ifPlaced('Deleted', onCluster(site, deleting)),
  })
  const kubernetesJob = bindLifecycle(bound, { db, wrap, plainNumbers: true }, watch ? watchOf(where, [JOB]) : [])
  return { kubernetesJob, all: [kubernetesJob] }
}
