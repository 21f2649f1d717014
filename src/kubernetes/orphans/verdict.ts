import { idKey } from '../../lock/index.js'
import { formatMs } from '../../time/index.js'
import type { KubernetesObject } from '../api/objects.js'
import { fenceOf } from '../cluster/ownership.js'
import type { OwnerDocument, Presence } from './owners.js'

/** To date the claim that wrote an object last: a fence is made of the server's milliseconds (src/lock/lease/fence.ts). */
const FENCES_PER_MS = 1_000

/** Kinds whose removal takes more along: a person decides. */
const BY_HAND: Readonly<Record<string, string>> = {
  Namespace: 'all that is in it goes along: remove it by hand',
  CustomResourceDefinition: 'all objects of that kind go along: remove it by hand',
}

/** Why an object no longer belongs to any document. */
export interface OrphanVerdict {
  /** `gone`: there is no such document. `ended`: it exists, in a final phase, which nothing leaves. */
  readonly why: 'gone' | 'ended'
  /** For people: which document is missing, or in which phase it has ended. */
  readonly reason: string
  /** Since it was created or, if that is later, since the claim of the step that wrote it last. */
  readonly ageMs: number
  /** Why it may not be removed now; undefined: it may. */
  readonly kept: string | undefined
}

export interface SweepRules {
  /** Nothing that is younger is removed. */
  readonly olderThanMs: number
  /** Also what documents in final phases left behind. */
  readonly ended: boolean
  /** Also if the collection has no document at all. */
  readonly emptyCollections: boolean
}

/** undefined: its document exists and may adopt it, or another controller looks after it. */
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

/** A ReplicaSet's pods, a certificate's requests: they go with their controller. */
function isControlled({ metadata }: KubernetesObject): boolean {
  const owners = metadata['ownerReferences'] as readonly { readonly controller?: boolean }[] | undefined
  return owners?.some(({ controller }) => controller === true) === true
}

/** NaN if it has no creation time. */
function ageOf(object: KubernetesObject, now: Date): number {
  const madeMs = Date.parse(object.metadata.creationTimestamp ?? '')
  return now.getTime() - Math.max(madeMs, fenceOf(object) / FENCES_PER_MS)
}

const held = (finalizers: readonly string[]) => (finalizers.length === 0 ? '' : `, held by ${finalizers.join(' and ')}`)
