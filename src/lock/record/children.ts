import type { Document } from 'mongodb'
import { canBeId } from '../documents/storable.js'

/** The parent of a document that a step of another one has inserted, as it is stored in `progress.parent`. */
export interface StoredParent {
  /** The lifecycle of its parent. */
  readonly lifecycle: string
  /** Its parent's `_id`. */
  readonly id: unknown
  /** Its parent's name for it: unique among the parent's children of this lifecycle. */
  readonly key: string
  /** The list of children that it was inserted with. */
  readonly list: string
  /**
   * The fence of the step that inserted it. A step with a lower one, which has lost the parent since, doesn't remove it. A document that is
   * inserted later with its parent's `_id` has higher ones, and doesn't take it for its own.
   */
  readonly fence?: number
}

/** A list of children of one lifecycle that a document's steps have inserted: an entry of `progress.children`. */
export interface ChildList {
  /** The list's name: a list of this name is inserted once. */
  readonly list: string
  /** The lifecycle of these children; null: the list was empty. */
  readonly lifecycle: string | null
  /** The number of children at the insert. */
  readonly total: number
}

/** The condition that ends a wait for children: see docs/children.md. */
export type ChildrenRule = 'allSucceeded' | 'allDone' | 'anyFailed' | `${number} of ${number}`

/** The event that a sleeping document awaits besides the end of its sleep, as it is stored in `progress.awaits`. */
export type StoredAwaits =
  | {
      /** Its children. */
      readonly kind: 'children'
      /** Until this is decided. */
      readonly rule: ChildrenRule
      /** The effect of a parked child: it is still waited for, or counts as failed. */
      readonly parked: 'waits' | 'fails'
      /** Or until any of them has ended. */
      readonly each?: boolean
    }
  | ({
      /** Another document. */
      readonly kind: 'document'
      /** Until it is in one of these. */
      readonly phases: readonly string[]
    } & DocumentName)

/** A document, by its lifecycle and its `_id`. */
export interface DocumentName {
  /** The name of its lifecycle. */
  readonly lifecycle: string
  /** Its `_id`. */
  readonly id: unknown
}

/** Reads the parent in a document's progress. A person may have put anything there: other values than a parent are ignored. */
export function parentIn(progress: unknown): StoredParent | undefined {
  const { parent } = Object(progress) as Document
  const { lifecycle, id, key, list, fence } = Object(parent) as Document
  if (typeof lifecycle !== 'string' || !canBeId(id) || typeof key !== 'string') return undefined
  return { lifecycle, id, key, list: typeof list === 'string' ? list : '', ...(typeof fence === 'number' && { fence }) }
}

/**
 * The least fence of this document's children: those with a lower one were inserted by a former document with its `_id`. Undefined: it has
 * inserted none, or in a version that didn't store it.
 */
export function childrenFromIn(progress: unknown): number | undefined {
  const { childrenFrom } = Object(progress) as Document
  return typeof childrenFrom === 'number' ? childrenFrom : undefined
}

/** True if a child was inserted by a former document with its parent's `_id`. Without fences it counts as this document's. */
export const isOfFormer = (parent: StoredParent, from: number | undefined): boolean =>
  parent.fence !== undefined && from !== undefined && parent.fence < from

/** The lists of children in a document's progress. */
export function childListsIn(progress: unknown): readonly ChildList[] {
  const { children } = Object(progress) as Document
  if (!Array.isArray(children)) return []
  return children.flatMap((one) => {
    const { list, lifecycle, total } = Object(one) as Document
    if (typeof list !== 'string' || !(typeof lifecycle === 'string' || lifecycle === null)) return []
    return [{ list, lifecycle, total: typeof total === 'number' ? total : 0 }]
  })
}

/** Reads the event that a sleeping document awaits; undefined: only its end. */
export function awaitsIn(progress: unknown): StoredAwaits | undefined {
  const { kind, rule, parked, each, phases, ...name } = Object(Object(progress)['awaits']) as Document
  if (kind === 'children' && typeof rule === 'string')
    return { kind, rule: rule as ChildrenRule, parked: parked === 'fails' ? 'fails' : 'waits', each: each === true }
  const [document] = namesIn([name])
  return kind === 'document' && document && Array.isArray(phases) ? { kind, ...document, phases } : undefined
}

/** The documents that wait for this one, as far as they have said so. */
export const waitersIn = (progress: unknown): readonly DocumentName[] => namesIn(Object(progress)['waiters'])

const namesIn = (list: unknown): DocumentName[] =>
  Array.isArray(list)
    ? list.flatMap((one) => {
        const { lifecycle, id } = Object(one) as Document
        return typeof lifecycle === 'string' && canBeId(id) ? [{ lifecycle, id }] : []
      })
    : []
