import { idKey } from '../../lock/index.js'
import { formatMs } from '../../time/index.js'
import type { KubernetesObject } from '../api/objects.js'
import { fenceOf } from '../cluster/ownership.js'
import type { OwnerDocument, Presence } from './owners.js'

/** Dates the claim that last wrote an object: a fence is made of the server's milliseconds (src/lock/lease/lease.ts). */
const FENCES_PER_MS = 1_000

/** Kinds whose removal takes other objects along: a person decides. */
const BY_HAND: Readonly<Record<string, string>> = {
  Namespace: 'all that is in it goes along: remove it by hand',
  CustomResourceDefinition: 'all objects of that kind go along: remove it by hand',
}

/** The finding that an object no longer belongs to any document. */
export interface OrphanVerdict {
  /** `gone`: there is no such document. `ended`: it exists, in a final phase, which no document leaves. */
  readonly why: 'gone' | 'ended'
  /** The reason in words: the document that is missing, or the phase in which it has ended. */
  readonly reason: string
  /** The age since its creation or, if that is later, since the claim of the step that last wrote it. */
  readonly ageMs: number
  /** The reason why it may not be removed now; undefined: it may be. */
  readonly kept: string | undefined
}

export interface SweepRules {
  /** No younger object is removed. */
  readonly olderThanMs: number
  /** True to remove objects left behind by documents in final phases too. */
  readonly ended: boolean
  /** True to remove objects even if the collection has no document at all. */
  readonly emptyCollections: boolean
}

/** Returns undefined if its document exists and may adopt it, or if another controller manages it. */
export function verdictOn(
  object: KubernetesObject,
  { model, id }: OwnerDocument,
  { now, phases, isEmpty, registeredIn = model.collection }: Presence,
  rules: SweepRules,
): OrphanVerdict | undefined {
  if (isControlled(object)) return undefined
  const key = idKey(id)
  const phase = phases.get(key)
  const isThere = phases.has(key)
  if (isThere && model.phases.get(String(phase))?.kind !== 'final') return undefined
  const ageMs = ageOf(object, now)
  const why = isThere ? 'ended' : 'gone'
  const reason = isThere ? `its document is in the final phase ${phase}` : 'its document is gone'
  const kept = (): string | undefined => {
    const { deletionTimestamp, finalizers = [] } = object.metadata
    if (deletionTimestamp !== undefined) return `on its way out${held(finalizers)}`
    if (BY_HAND[object.kind]) return BY_HAND[object.kind]
    if (!(ageMs >= rules.olderThanMs))
      return `younger than ${formatMs(rules.olderThanMs)}: who made it may still be there`
    if (registeredIn !== model.collection)
      return `replicas have the documents of ${model.name} in ${registeredIn}, these lifecycles in ${model.collection}`
    if (isEmpty && !rules.emptyCollections)
      return `the collection ${model.collection} is empty, so this may be the wrong database: --empty`
    if (isThere && !rules.ended) return 'a lifecycle may end and leave it on purpose: --ended'
    return undefined
  }
  return { why, reason, ageMs, kept: kept() }
}

/** True for a ReplicaSet's pods or a certificate's requests: they go with their controller. */
function isControlled({ metadata }: KubernetesObject): boolean {
  const owners = metadata['ownerReferences'] as readonly { readonly controller?: boolean }[] | undefined
  return owners?.some(({ controller }) => controller === true) === true
}

/** The object's age; NaN if it has no creation time. */
function ageOf(object: KubernetesObject, now: Date): number {
  const madeMs = Date.parse(object.metadata.creationTimestamp ?? '')
  return now.getTime() - Math.max(madeMs, fenceOf(object) / FENCES_PER_MS)
}

const held = (finalizers: readonly string[]) => (finalizers.length === 0 ? '' : `, held by ${finalizers.join(' and ')}`)
