import { type KubernetesObject, nameOf, type ObjectRef } from './objects.js'

/** Whether an object is gone; `reason` is for `step.wait`. */
export type Removal = { readonly gone: true } | { readonly gone: false; readonly reason: string }

/** The finalizer of an object that was deleted with propagation 'Foreground'. */
const DEPENDENTS = 'foregroundDeletion'

/** @param live what is there under that name now */
export function removalOf(ref: ObjectRef, live: KubernetesObject | undefined): Removal {
  if (!live) return { gone: true }
  const { finalizers = [] } = live.metadata
  if (finalizers.length === 1 && finalizers[0] === DEPENDENTS) {
    return { gone: false, reason: `${nameOf(ref)} is still there until all that belongs to it is gone` }
  }
  const held =
    finalizers.length === 0
      ? ''
      : `, held by the finalizer${finalizers.length > 1 ? 's' : ''} ${finalizers.join(' and ')}`
  return { gone: false, reason: `${nameOf(ref)} is still there${held}${remaining(live)}` }
}

/** What a namespace says of why it isn't gone yet. */
function remaining(live: KubernetesObject): string {
  const { conditions = [] } = (live['status'] ?? {}) as { conditions?: readonly Partial<Record<string, string>>[] }
  const says = conditions.filter(
    ({ type = '', status }) => /^Namespace\w*(Remaining|Failure)$/.test(type) && status === 'True',
  )
  return says.length === 0 ? '' : `: ${says.map(({ message }) => message).join('; ')}`
}
