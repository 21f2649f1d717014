import { type Collection, type Document, type Filter } from 'mongodb'
import { isNotHeld, PUT_TO_SLEEP } from '../lease/lease-state.js'
import {
  applyPendingInsertOfHolder,
  pendingFields,
  pendingState,
  withoutPendingInsert,
} from '../record/pending-insert.js'
import { historyWith } from '../record/step-end.js'
import {
  arrayAt,
  hasOurShape,
  inProgress,
  literal,
  progressAcrossPhases,
  progressIfOurs,
  TASK_LOCK_INIT_TIME,
  type Terms,
} from '../terms/terms.js'
import {
  anotherGo,
  DUE_AND_NOBODYS,
  DUE_SINCE_NOW,
  leaseFieldsOf,
  PARKED_IDLE,
  stateSet,
  type Unwritten,
  unwrittenTo,
  type Write,
  woken,
} from './owner-writes.js'
import { type NotifyingLifecycle, removeOne } from './removal.js'

/*
 * Writes of an operation on many documents (docs/bulk-operations.md), each to one document. A write leaves the operation's mark in the
 * document, in the same update as its effect, and matches no document that has it: repeated after a crash it does nothing twice.
 */

/** The operation that writes, and its conditions on a document besides those of the write itself. */
export interface Operating {
  readonly operation: string
  /** The user who began it, for the history. */
  readonly by: string
  /** The filter that selected its documents: one that no longer matches is left alone. */
  readonly where: Filter<Document>
}

/** Marks that a document keeps: for this many operations interrupted at the same time nothing is done twice. */
const MOST_MARKS = 5

const marksIn = ({ progress }: Terms): string => `${progress}.operations`

/** The operation that has set a document's state last. */
const stateByIn = ({ progress }: Terms): string => `${progress}.stateBy`

/** The operations that have acted on a document, as an expression. */
const knownMarks = (terms: Terms): Document => arrayAt(`$${marksIn(terms)}`)

/** The fields of `progress` that an operation leaves. */
const marksOf = (terms: Terms, { operation }: Operating): { readonly operations: Document } => ({
  operations: { $slice: [{ $concatArrays: [knownMarks(terms), [literal(operation)]] }, -MOST_MARKS] },
})

const withHistory = (
  terms: Terms,
  { operation, by }: Operating,
  did: string,
  to?: string,
): { readonly history: Document } => ({
  history: historyWith(terms, { outcome: 'owner', reason: `${did} (${operation})`, by, ...(to && { to }) }),
})

const inOurs = (terms: Terms, fields: Document): Document =>
  progressIfOurs(terms, { $mergeObjects: [`$${terms.progress}`, fields] })

/** The marks after an undo: the operation that acted last before the undone one is the last again. */
function withUndoMark(terms: Terms, { operation }: Operating, of: string, before: unknown): Document {
  const known = knownMarks(terms)
  const others = { $filter: { input: known, cond: { $not: { $in: ['$$this', [literal(of), literal(operation)]] } } } }
  const isLast = { $eq: [{ $arrayElemAt: [known, -1] }, literal(of)] }
  const left = Array.isArray(before) ? { $cond: [isLast, literal(before.slice(-MOST_MARKS)), others] } : others
  return { $concatArrays: [[literal(of), literal(operation)], { $slice: [left, -MOST_MARKS] }] }
}

const unmarked = (terms: Terms, id: unknown, { operation, where }: Operating, ...also: Filter<Document>[]) => ({
  // At the top: a router looks for it there.
  _id: id as never,
  $and: [{ [marksIn(terms)]: { $ne: operation } }, where, ...also],
})

/** The writes of an operation to one document, each as its filter and update. */
export const operationWrites = {
  /** Ends its sleep. */
  wake(terms: Terms, id: unknown, operating: Operating): Write {
    const update = woken(terms, { ...DUE_SINCE_NOW, ...inOurs(terms, marksOf(terms, operating)) })
    return [unmarked(terms, id, operating, PUT_TO_SLEEP, isNotHeld(terms)), update]
  },

  /** Unparks a document, if it is parked. */
  unpark(terms: Terms, id: unknown, operating: Operating): Write {
    const why = { reason: `unparked (${operating.operation})`, by: operating.by }
    const [isParked, update] = anotherGo(terms, why, PARKED_IDLE, marksOf(terms, operating))
    return [unmarked(terms, id, operating, isParked), update]
  },

  /** Sets the owner's state, even while the document is held. */
  setState(terms: Terms, id: unknown, operating: Operating, state: string | undefined): Write {
    const marks = { ...marksOf(terms, operating), stateBy: literal(operating.operation) }
    return [unmarked(terms, id, operating), stateSet(terms, state, inOurs(terms, marks))]
  },

  /** Makes it begin again: in a phase, at a step, with other fields of its owner's; `$phase`: where it is. Not while it is held. */
  redo(terms: Terms, id: unknown, operating: Operating, { phase, step, set }: Redo): Write {
    const now = '$$NOW'
    const begunAnew = {
      ...{ since: now, attempts: 0, claims: 0, ...withHistory(terms, operating, 'redone', phase) },
      ...marksOf(terms, operating),
      ...(step !== undefined && { step: literal(step) }),
    }
    const fields = Object.fromEntries(Object.entries(set).map(([field, value]) => [field, literal(value)]))
    const moved = {
      ...{ ...fields, ...DUE_AND_NOBODYS, ...DUE_SINCE_NOW, ...(phase && { phase: literal(phase) }) },
      [terms.progress]: withoutPendingInsert({ $mergeObjects: [progressAcrossPhases(terms), begunAnew] }),
    }
    // The queued inserts were there before: they lie under the values that this sets.
    const left = { $replaceWith: { $mergeObjects: ['$$ROOT', pendingFields(terms)] } }
    return [unmarked(terms, id, operating, { $expr: hasOurShape(terms) }, isNotHeld(terms)), [left, { $set: moved }]]
  },

  /** Moves it to another phase as a rename does: its sleep, its step and its deadline go on. Not while it is held. */
  migrate(terms: Terms, id: unknown, operating: Operating, phase: string): Write {
    const fields = { ...withHistory(terms, operating, 'moved', phase), ...marksOf(terms, operating) }
    const moved = { phase: literal(phase), [terms.progress]: { $mergeObjects: [`$${terms.progress}`, fields] } }
    const elsewhere = { phase: { $ne: phase } }
    return [
      unmarked(terms, id, operating, elsewhere, { $expr: hasOurShape(terms) }, isNotHeld(terms)),
      [{ $set: moved }, applyPendingInsertOfHolder(terms), { $unset: 'lockedBy' }],
    ]
  },

  /** Sets a state back, if the one that an operation has set still stands, and no other operation has set it since. */
  setStateBack(terms: Terms, id: unknown, operating: Operating, { of, before, wanted, state }: StateBack): Write {
    const stands = { state: { $eq: state, $not: { $type: 'array' } } }
    // An operation of an earlier version has left no name.
    const isLast: Filter<Document> = { [stateByIn(terms)]: { $in: [of, null] } }
    const { stateBy } = before.progress
    const operations = withUndoMark(terms, operating, of, before.operations)
    const marks = { operations, ...(stateBy != null && { stateBy: literal(stateBy) }) }
    const update = stateSet(terms, wanted, inOurs(terms, marks))
    const unnamed = stateBy == null ? [{ $unset: stateByIn(terms) }] : []
    return [unmarked(terms, id, operating, stands, isLast), [...update, ...unnamed]]
  },

  /**
   * Puts it back to its state before an operation. The operation must be the last one to act on it. No step of it may have begun since, and no
   * one may have moved it, answered its question or changed the fields that the operation has set. Fields that others than its holders write in
   * `progress` stay as they are.
   */
  putBack(terms: Terms, id: unknown, operating: Operating, { of, before, set, phase, wakes }: PutBack): Write {
    const { fence, progress, fields, operations, ...own } = before
    const history = withHistory(terms, operating, `undone: ${of}`, before.phase)
    const marked = { ...history, operations: withUndoMark(terms, operating, of, operations) }
    const others = Object.fromEntries(OTHERS.map((field) => [field, inProgress(terms, field)]))
    const answer = inProgress(terms, 'answer')
    const isUnanswered = { $in: [{ $ifNull: [answer, null] }, [null, literal(progress['answer'] ?? null)]] }
    const isLast = { $eq: [{ $arrayElemAt: [{ $ifNull: [`$${marksIn(terms)}`, []] }, -1] }, literal(of)] }
    const standsStill = {
      ...{ $expr: { $and: [isLast, isUnanswered] }, fence: fence ?? null, phase, lockedBy: null },
      lockedAt: wakes ? TASK_LOCK_INIT_TIME : ((own.lockedAt as Date | undefined) ?? null),
    }
    const stands = Object.entries(set).map(([field, value]) => ({ [field]: { $eq: value } }))
    const was: Document = { ...own, ...fields }
    const names = ['phase', 'lockedAt', 'updatedAt', ...Object.keys(set)]
    const asBefore = Object.fromEntries(names.map((name) => [name, name in was ? literal(was[name]) : '$$REMOVE']))
    const moved = { ...asBefore, [terms.progress]: { $mergeObjects: [literal(without(progress)), others, marked] } }
    return [unmarked(terms, id, operating, standsStill, ...stands), [{ $set: moved }]]
  },
} as const

/** The point from which a document begins again. */
export interface Redo {
  readonly phase: string | undefined
  readonly step: string | undefined
  readonly set: Document
}

/** Fields of `progress` that are written while no replica holds the document, and that no operation writes. */
const OTHERS = ['outbox', 'waiters', 'next']
const without = (progress: Document): Document =>
  Object.fromEntries(Object.entries(progress).filter(([field]) => !OTHERS.includes(field)))

/** The state of a document before an operation, as far as the operation may change it. */
export interface Before {
  readonly phase: string
  readonly lockedAt?: unknown
  readonly updatedAt?: unknown
  readonly fence?: unknown
  /** Without its history, which goes on. */
  readonly progress: Document
  /** The operations that had acted on it. */
  readonly operations?: unknown
  /** Those of its owner's that the operation sets. */
  readonly fields: Document
}

export interface StateBack {
  /** The operation that is undone. */
  readonly of: string
  readonly before: Before
  /** The state that its owner wanted before it. */
  readonly wanted: unknown
  /** The state that the operation has set. */
  readonly state: string
}

export interface PutBack {
  /** The operation that is undone. */
  readonly of: string
  readonly before: Before
  /** The fields that the operation has set. */
  readonly set: Document
  /** The phase of the document after the operation. */
  readonly phase: string
  /** True if the operation made the document due. */
  readonly wakes: boolean
}

/** Collects the fields of a read document that an operation may have to put back. */
export function beforeOf(document: Document, { progress }: Pick<Terms, 'progress'>, fields: readonly string[]): Before {
  const { history: _, operations, ...own } = (document[progress] ?? {}) as Document
  const those = (names: readonly string[]) =>
    Object.fromEntries(names.flatMap((name) => (name in document ? [[name, document[name]]] : [])))
  const here = those(['phase', 'lockedAt', 'updatedAt', 'fence'])
  return {
    phase: String(document['phase']),
    ...here,
    progress: own,
    operations: operations ?? [],
    fields: those(fields),
  }
}

/** The projection for {@link beforeOf}. */
export const beforeProjection = ({ progress }: Pick<Terms, 'progress'>, fields: readonly string[]): Document =>
  Object.fromEntries(['state', ...keptFields({ progress }, fields)].map((field) => [field, 1]))

const valueAt = (document: Document, path: string): unknown =>
  path.split('.').reduce((value: unknown, name) => Object(value)[name], document)

/** The state that its owner wants of a document that was read: that of a queued insert is newer. */
export const stateWanted = (document: Document, terms: Pick<Terms, 'progress'>): unknown =>
  valueAt(document, pendingState(terms)) ?? document['state']

/** Matches a document that hasn't changed since it was read, in the fields that an operation may have to put back. */
export function isAsRead(document: Document, terms: Terms, what: 'state' | readonly string[]): Filter<Document> {
  const isOurs = document[terms.progress]?.constructor === Object
  const ofState = ['state', ...(isOurs ? [pendingState(terms), stateByIn(terms), marksIn(terms)] : [])]
  const paths = what === 'state' ? ofState : keptFields(terms, what)
  const same = paths.map((path) => {
    const value = valueAt(document, path)
    return value === undefined ? { $eq: [{ $type: `$${path}` }, 'missing'] } : { $eq: [`$${path}`, literal(value)] }
  })
  return { $expr: { $and: same } }
}

const keptFields = ({ progress }: Pick<Terms, 'progress'>, fields: readonly string[]): readonly string[] => [
  ...['phase', 'lockedAt', 'updatedAt', 'fence', progress, ...fields],
]

function marksOn(document: Document, { progress }: Pick<Terms, 'progress'>): readonly unknown[] {
  const marks: unknown = document[progress]?.operations
  return Array.isArray(marks) ? marks : []
}

/** True if an operation may have acted on a document, but the document's marks only go back to later ones. */
export const isForgotten = (document: Document, terms: Pick<Terms, 'progress'>, operation: string): boolean =>
  marksOn(document, terms).length >= MOST_MARKS && !wasActedOn(document, terms, operation)

/** True if an operation is among the latest that acted on a document. */
export const wasActedOn = (document: Document, terms: Pick<Terms, 'progress'>, operation: string): boolean =>
  marksOn(document, terms).includes(operation)

/**
 * Removes one of an operation's documents, if no replica holds it; true if it did. It needs no mark: a removed document is in no phase that
 * selects documents.
 */
export async function removeByOperation(
  documents: Collection,
  terms: Terms,
  notifying: NotifyingLifecycle | undefined,
  id: unknown,
  operating: Operating,
): Promise<boolean> {
  const { operation, by } = operating
  const { $and } = unmarked(terms, id, operating)
  const which = { _id: id, unlessHeld: true, where: { $and } }
  return (await removeOne(documents, terms, notifying, which, { by, reason: `removed (${operation})` })) !== undefined
}

/** Finds out why an operation's write didn't match a document; `done`: because it had been done before. */
export async function whyUnmatched(
  documents: Collection,
  terms: Terms,
  id: unknown,
  operation: string,
): Promise<Unwritten | 'done'> {
  const found = await leaseFieldsOf(documents, id, {}, marksIn(terms))
  return found && wasActedOn(found, terms, operation) ? 'done' : unwrittenTo(found)
}
