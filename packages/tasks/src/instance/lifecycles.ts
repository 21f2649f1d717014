import type { RunnableLifecycle } from 'phaselock'
import { onCluster } from 'phaselock/kubernetes'
import { type BindOptions, type Bound, bindLifecycle } from 'phaselock/tasks'
import { checkPodSecurity, ifPlaced, type PodSecurity, siteOf, type Where, watchOf, whereOf } from '../pods/index.js'
import { type InstanceSettings, instanceDefinition } from './definitions.js'
import { deleting, type InstanceParts, restarting, starting, stopping, updating } from './handlers.js'
import { DEPLOYMENT, instanceNameFor, SERVICE } from './manifests.js'

export type InstanceOptions = InstanceSettings &
  BindOptions &
  Where & {
    /** The security profile of the pods on their nodes. Default `baseline`. */
    readonly podSecurity?: PodSecurity | undefined
    /** Returns true if the gateway that created an instance is gone or being deleted: the instance then deletes itself. Default: never. */
    readonly isOrphan?: InstanceParts['isOrphan'] | undefined
    /** True to continue documents as soon as their objects in the cluster change, by a watch on each replica. Default true. */
    readonly watch?: boolean | undefined
  }

export interface InstanceLifecycles {
  readonly instance: Bound<ReturnType<typeof instanceDefinition>>
  /** The lifecycles for a replica: `new Replica({ db, lifecycles: all })`. */
  readonly all: readonly RunnableLifecycle[]
  /** Returns the name of the Deployment and of the Service of the instance with this `_id`. */
  serviceNameFor(id: unknown): string
}

/**
 * The instance lifecycle with its handlers. See docs/tasks/instance.md.
 * @throws InvalidLifecycle for unknown settings and those out of range
 */
export function instanceLifecycles(options: InstanceOptions): InstanceLifecycles {
  const {
    db,
    regions,
    cluster,
    namespace,
    podSecurity = 'baseline',
    isOrphan = never,
    watch = true,
    wrap,
    ...settings
  } = options
  checkPodSecurity('instance', podSecurity)
  const where = whereOf('instance', { regions, cluster, namespace } as Partial<Where>)
  const definition = instanceDefinition(settings)
  const { name, collection } = definition.model
  const site = siteOf(where, { name, collection, db }, instanceNameFor)
  const parts: InstanceParts = { security: podSecurity, isOrphan }
  const bound = definition.handle({
    Starting: onCluster(site, starting(parts)),
    Updating: onCluster(site, updating(parts)),
    Restarting: onCluster(site, restarting(parts)),
    Stopping: ifPlaced('Stopped', onCluster(site, stopping)),
    Deleting: ifPlaced('Deleted', onCluster(site, deleting)),
  })
  const instance = bindLifecycle(
    bound,
    { db, wrap, plainNumbers: true },
    watch ? watchOf(where, [DEPLOYMENT, SERVICE]) : [],
  )
  return { instance, all: [instance], serviceNameFor: instanceNameFor }
}

const never = async () => false
