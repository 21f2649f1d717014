import { withFormerFields } from '../../options/index.js'
import type { ApiServer, CallOptions } from '../api/api-server.js'
import { type KubernetesObject, nameOf, type ObjectRef } from '../api/objects.js'

/** The fate of the dependents of a removed object (a Deployment's pods): gone before it, after it, or kept. */
export type Propagation = 'Foreground' | 'Background' | 'Orphan'

/** The way to remove an object. */
export interface RemoveOptions {
  /** Default 'Background'. With 'Foreground' the object stays until all its dependents are gone. */
  readonly propagation?: Propagation
  /** The time that pods get to stop. Default: as in their specs. */
  readonly gracePeriodSeconds?: number
}

/** The progress of a removal. */
export interface Removal {
  /** True once the object is gone. Until then: `return step.wait(removal.text)`. */
  readonly done: boolean
  /** For people: `ConfigMap g is still there, held by the finalizer example.com/hold`. */
  readonly text: string
}

/** The finalizer of an object that was deleted with propagation 'Foreground'. */
const DEPENDENTS = 'foregroundDeletion'

/**
 * Deletes exactly the object that was read, in the state that was read.
 * @throws KubernetesConflict if it was written since, or if another object has its name now; the errors of any request (Cluster)
 */
export async function deleteAsSeen(
  cluster: ApiServer,
  seen: KubernetesObject,
  { propagation = 'Background', gracePeriodSeconds }: RemoveOptions = {},
  limits: CallOptions = {},
): Promise<void> {
  const { name, namespace, uid, resourceVersion } = seen.metadata
  const body = {
    apiVersion: 'v1',
    kind: 'DeleteOptions',
    preconditions: { uid, resourceVersion },
    propagationPolicy: propagation,
    gracePeriodSeconds,
  }
  const http = { method: 'DELETE', body } as const
  await cluster.answerTo({ verb: 'delete', kind: seen, namespace, object: name, http, ...limits })
}

/**
 * The progress of an object's removal: gone, or what it still waits for (finalizers, dependents, pods).
 * @param live the object under that name now
 */
export function removalOf(ref: ObjectRef, live: KubernetesObject | undefined): Removal {
  const text = `${nameOf(ref)} ${live ? whatHolds(live) : 'is gone'}`
  return withFormerFields('remove', { done: !live, text }, { gone: 'done', reason: 'text' })
}

/** The reason why a deleted object still exists, in words that follow its name. */
export function whatHolds(live: KubernetesObject): string {
  const { finalizers = [] } = live.metadata
  if (finalizers.length === 1 && finalizers[0] === DEPENDENTS)
    return 'is still there until all that belongs to it is gone'
  const noun = finalizers.length > 1 ? 'finalizers' : 'finalizer'
  const held = finalizers.length === 0 ? '' : `, held by the ${noun} ${finalizers.join(' and ')}`
  return `is still there${held}${remaining(live)}`
}

/** The reasons a namespace gives for not being gone yet. */
function remaining(live: KubernetesObject): string {
  const { conditions = [] } = (live['status'] ?? {}) as { conditions?: readonly Partial<Record<string, string>>[] }
  const says = conditions.filter(
    ({ type = '', status }) => /^Namespace\w*(Remaining|Failure)$/.test(type) && status === 'True',
  )
  return says.length === 0 ? '' : `: ${says.map(({ message }) => message).join('; ')}`
}
