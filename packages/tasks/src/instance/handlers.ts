import type { Outcome, Progress, Step } from 'phaselock'
import { type HeldCluster, NotOwned, type ObjectRef, type Removal, type RemoveOptions } from 'phaselock/kubernetes'
import type { Pod, PodSecurity, Site } from '../pods/index.js'
import { checkInstance } from './check-instance.js'
import type { Instance } from './documents.js'
import { DEPLOYMENT, INSTANCE_LABEL, POD, SERVICE } from './manifests.js'
import { rollOut } from './roll-out.js'

/** The dependencies of the handlers of an instance. */
export interface InstanceParts {
  readonly security: PodSecurity
  /** Returns true if the gateway that created an instance is gone or being deleted; such an instance deletes itself. */
  readonly isOrphan: (doc: Readonly<Instance>) => Promise<boolean>
}

/** A handler that also gets its document's site. */
type SiteHandler<Next extends string> = (
  doc: Readonly<Instance>,
  step: Step<Next, Instance>,
  site: Site,
) => Promise<Outcome<Next, Instance>>

export function starting({ security, isOrphan }: InstanceParts): SiteHandler<'Started' | 'Deleting'> {
  return async (doc, step, site) => {
    if (step.name !== undefined) return rollOut(doc, step, site, security)
    if (await isOrphan(doc)) return step.moveTo('Deleting')
    return place(doc, step, site)
  }
}

export function updating({ security }: InstanceParts): SiteHandler<'Started'> {
  return async (doc, step, site) => {
    if (step.name !== undefined) return rollOut(doc, step, site, security)
    return place(doc, step, site)
  }
}

/** Restarts an instance: a rollout of the same with a new annotation on its pods. New pods come before the old ones go. */
export function restarting({ security }: InstanceParts): SiteHandler<'Started'> {
  return async (doc, step, site) => {
    if (step.name !== undefined) return rollOut(doc, step, site, security)
    return place(doc, step, site, { restarted: step.fence })
  }
}

/** Checks everything that can be wrong, and stores the place of the objects, before the first one is created. */
async function place(
  doc: Readonly<Instance>,
  step: Step<'Started', Instance>,
  { place }: Site,
  also: Partial<Instance> = {},
): Promise<Outcome<never, Instance>> {
  const { region } = doc
  if (place.region !== undefined && region != null && region !== place.region) {
    return step.park(
      `expected the region to stay '${place.region}', where its objects are, got '${region}': delete it and make another one there`,
    )
  }
  const checked = checkInstance(doc)
  if ('problem' in checked) return step.park(checked.problem)
  return step.again({ step: 'deployment', set: { ...also, placed: place } })
}

/** Removes the Deployment and its pods. The Service stays, so that its address is the same when the instance is started again. */
export async function stopping(
  doc: Readonly<Instance>,
  step: Step<'Stopped', Instance>,
  site: Site,
): Promise<Outcome<'Stopped', Instance>> {
  const because = step.name === undefined ? whyStopped(doc, step.progress) : undefined
  if (because !== undefined && because !== (doc.stoppedBecause ?? null)) {
    return step.again({ step: 'deployment', set: { stoppedBecause: because } })
  }
  const left = await removeDeployment(site)
  if (left !== undefined) return step.wait(left, { on: 'removal' })
  return step.moveTo('Stopped', { set: { trouble: null, applied: null, stoppedBecause: doc.stoppedBecause ?? null } })
}

/** The reason why an instance is being stopped: null if its owner wants that, else the cause that kept it from starting in time. */
function whyStopped(doc: Readonly<Instance>, { history = [] }: Progress): string | null {
  const entered = history.findLast((entry) => entry.to === 'Stopping')
  if (entered?.outcome !== 'deadline') return null
  return doc.trouble ?? entered.reason ?? 'it took too long to start'
}

export async function deleting(
  _doc: Readonly<Instance>,
  step: Step<'Deleted', Instance>,
  site: Site,
): Promise<Outcome<'Deleted', Instance>> {
  const { place, cluster } = site
  if (step.name === undefined) {
    const removal = await removeOwn(cluster, { ...SERVICE, metadata: place })
    return removal === 'notOurs' || removal.done
      ? step.again({ step: 'deployment', set: { address: null } })
      : step.wait(removal.text, { on: 'removal' })
  }
  const left = await removeDeployment(site)
  return left === undefined ? step.moveTo('Deleted') : step.wait(left, { on: 'removal' })
}

/** @returns the remaining objects, as a wait's reason; undefined once the Deployment and all of its pods are gone */
async function removeDeployment({ cluster, place }: Site): Promise<string | undefined> {
  const { name, namespace } = place
  // The Deployment stays until its pods are gone, so no lagging controller creates another pod after the check below.
  const removal = await removeOwn(cluster, { ...DEPLOYMENT, metadata: place }, { propagation: 'Foreground' })
  if (removal === 'notOurs') return undefined
  const labels = `${INSTANCE_LABEL}=${name}`
  const pods = (await cluster.list(POD, { namespace, labels, limit: 20 })) as unknown as Pod[]
  if (pods.length > 0)
    return `pods are still there: ${pods.slice(0, 3).map(leftover).join(', ')}${pods.length > 3 ? ', ...' : ''}`
  return removal.done ? undefined : removal.text
}

function leftover({ metadata: { name, finalizers = [], deletionTimestamp } }: Pod): string {
  if (finalizers.length > 0) return `${name} (held by ${finalizers.join(' and ')})`
  return deletionTimestamp === undefined ? name : `${name} (stopping)`
}

/** Removes an object. One of this name with another owner is left alone, with its pods. */
async function removeOwn(cluster: HeldCluster, ref: ObjectRef, options?: RemoveOptions): Promise<Removal | 'notOurs'> {
  try {
    return await cluster.remove(ref, options)
  } catch (error) {
    if (error instanceof NotOwned) return 'notOurs'
    throw error
  }
}
