import type { Collection, Document } from 'mongodb'
import { isDuplicateKey } from '../../database/index.js'
import { asleepUntil } from '../end/end-update.js'
import { IS_PARKED, isUnleased } from '../lease/lease-state.js'
import { addPendingInsert, begunIn, pendingFields, withoutPendingInsert } from '../record/pending-insert.js'
import { hasOurShape, isDate, literal, TASK_LOCK_INIT_TIME, type Terms } from '../terms/terms.js'
import type { OwnerWriteOptions } from './owner-writes.js'

/** The ways to treat the document that has the `_id` of an insert. */
export const ON_DUPLICATE = ['ignore', 'wake', 'replaceWaiting', 'runAgain'] as const
/** One of {@link ON_DUPLICATE}. */
export type OnDuplicate = (typeof ON_DUPLICATE)[number]

/** The state of the document that has the `_id`. */
type Found = 'none' | 'removed' | 'due' | 'asleep' | 'held' | 'parked' | 'resting' | 'unknown' | 'odd'

/** The outcome of an insert. */
export type InsertKind = 'inserted' | 'ignored' | 'woken' | 'replaced' | 'queued' | 'restarted' | 'parked' | 'resting'

/**
 * The outcome of an insert, or `refused`: the existing document is in a phase that isn't known, or isn't of Phaselock's shape; or `removed`: it
 * is there only until its callbacks have been notified that it is gone.
 */
export type Insertion =
  | { readonly kind: InsertKind | 'removed' }
  | { readonly kind: 'refused'; readonly phase: unknown; readonly isOdd: boolean }

/** A document to insert, with its `_id` and `phase`. */
export interface InsertRequest {
  readonly document: Document
  readonly onDuplicate: OnDuplicate
  /** The phases with work to do, and the others. */
  readonly working: readonly string[]
  readonly resting: readonly string[]
  /** The phase of removed documents. Default: there are none. */
  readonly removed?: string | undefined
  /** The inserter, for the history. */
  readonly by: string
  /** It is due after this time, or sooner if it would be anyway. Default: immediately, or by its `lockedAt`. */
  readonly dueInMs?: number | undefined
}

/** Of two inserts of a new `_id` at the same time the server may refuse one, which then finds the other's document. */
const MOST_TRIES = 5

/**
 * Inserts a document, or treats the one that has its `_id` as `onDuplicate` says: one command, judged by the server, so that each of any number
 * at the same time finds the result of the one before it. Nothing here ends a lease: an insert for a held document is queued in `progress.next`.
 *
 * A document counts as asleep if it was put to sleep and no one has woken or claimed it since, even if it has just come due.
 * @throws the server's duplicate key error, if a unique index of the owner's refuses the document
 */
export async function upsertDocument(
  documents: Collection,
  terms: Terms,
  request: InsertRequest,
  options: OwnerWriteOptions = {},
): Promise<Insertion> {
  const { document, onDuplicate } = request
  const found = foundAs(terms, request)
  const update = [{ $replaceWith: upserted(terms, request, found) }]
  for (let tries = 1; ; tries += 1) {
    try {
      const before = await documents.findOneAndUpdate({ _id: { $eq: document['_id'] } }, update, {
        upsert: true,
        returnDocument: 'before',
        projection: { _id: 0, found, phase: { $cond: [{ $eq: [found, 'unknown'] }, '$phase', null] } },
        ...options,
      })
      return insertionOf(onDuplicate, before?.['found'] ?? 'none', before?.['phase'])
    } catch (error) {
      const isOfId = isDuplicateKey(error) && / index: _id_ /.test((error as Error).message)
      if (!isOfId || tries === MOST_TRIES) throw error
    }
  }
}

function insertionOf(onDuplicate: OnDuplicate, found: Found, phase: unknown): Insertion {
  if (found === 'none') return { kind: 'inserted' }
  if (found === 'removed') return { kind: 'removed' }
  if (onDuplicate === 'ignore') return { kind: 'ignored' }
  switch (found) {
    case 'due':
      return { kind: onDuplicate === 'wake' ? 'ignored' : 'replaced' }
    case 'asleep':
      return { kind: onDuplicate === 'wake' ? 'woken' : 'replaced' }
    case 'parked':
    case 'resting':
      return { kind: onDuplicate === 'runAgain' ? 'restarted' : found }
    case 'held':
      return { kind: 'queued' }
    default:
      return { kind: 'refused', phase, isOdd: found === 'odd' }
  }
}

/** The server's view of the document, as an expression: a {@link Found}. An upsert starts with nothing but the `_id`. */
function foundAs(terms: Terms, { working, resting, removed }: InsertRequest): Document {
  const isIn = (phases: readonly string[]) => ({ $in: ['$phase', literal(phases)] })
  const isAsleep = { $and: [isDate('$lockedAt'), { $gt: ['$lockedAt', TASK_LOCK_INIT_TIME] }] }
  return {
    $switch: {
      branches: [
        [{ $eq: [{ $size: { $objectToArray: '$$ROOT' } }, 1] }, 'none'],
        ...(removed === undefined ? [] : [[{ $eq: ['$phase', literal(removed)] }, 'removed']]),
        [{ $not: [hasOurShape(terms)] }, 'odd'],
        [{ $not: [isIn([...working, ...resting])] }, 'unknown'],
        [{ $not: [isUnleased] }, 'held'],
        [IS_PARKED, 'parked'],
        [isIn(resting), 'resting'],
        [isAsleep, 'asleep'],
      ].map(([when, then]) => ({ case: when, then })),
      default: 'due',
    },
  }
}

/** The document after the insert, whatever was there. */
function upserted(terms: Terms, { document, onDuplicate, by, dueInMs }: InsertRequest, found: Document): Document {
  const later = dueInMs && asleepUntil(terms, { $add: ['$$NOW', dueInMs] })
  const given: unknown = document['lockedAt'] ?? undefined
  const dueAt = later ?? given ?? TASK_LOCK_INIT_TIME
  const awoken = { lockedAt: later ? { $min: ['$lockedAt', later] } : TASK_LOCK_INIT_TIME }
  const own = literal(ownFields(document, terms))
  // An owner may have freed it while an insert was queued for it.
  const fields = ['$$ROOT', pendingFields(terms), own]
  const awake = progressIfThere(terms, withoutPendingInsert(`$${terms.progress}`))
  const wake = { $mergeObjects: ['$$ROOT', pendingFields(terms), awoken, awake] }
  const phase = literal(document['phase'])
  const restarted = { $mergeObjects: [...fields, begunIn(terms, { phase, lockedAt: dueAt, by })] }
  const queued = (insert: { set: Document; begin?: string; lockedAt?: unknown }) => ({
    $mergeObjects: ['$$ROOT', { [terms.progress]: addPendingInsert(terms, { ...insert, later, by }) }],
  })
  const createdAt = '$$NOW'
  const inserted = {
    $mergeObjects: ['$$ROOT', { createdAt }, literal(document), ...(later ? [{ lockedAt: later }] : [])],
  }
  const cases: Partial<Record<Found, Document>> = { none: inserted }
  if (onDuplicate === 'wake') {
    cases.asleep = wake
    cases.held = queued({ set: {} })
  } else if (onDuplicate !== 'ignore') {
    const runsAgain = onDuplicate === 'runAgain'
    cases.due = { $mergeObjects: [...fields, ...(given ? [{ lockedAt: given }] : []), awake] }
    cases.asleep = { $mergeObjects: [...fields, given ? { lockedAt: given } : awoken, awake] }
    cases.held = queued({ set: own, lockedAt: given, ...(runsAgain && { begin: document['phase'] }) })
    if (runsAgain) cases.parked = cases.resting = restarted
  }
  const branches = Object.entries(cases).map(([one, then]) => ({ case: { $eq: ['$$found', one] }, then }))
  return { $let: { vars: { found }, in: { $switch: { branches, default: '$$ROOT' } } } }
}

/** The change to `progress` if Phaselock has stored one; otherwise nothing: the first claim of such a document is cheaper. */
const progressIfThere = ({ progress }: Terms, changed: Document): Document => ({
  $cond: [{ $eq: [{ $type: `$${progress}` }, 'object'] }, { [progress]: changed }, {}],
})

/** The owner's fields in a document to insert. */
function ownFields(document: Document, { progress }: Terms): Document {
  const ours = new Set(['_id', 'phase', 'lockedAt', 'lockedBy', 'fence', 'createdAt', 'updatedAt', progress])
  return Object.fromEntries(Object.entries(document).filter(([field]) => !ours.has(field)))
}
