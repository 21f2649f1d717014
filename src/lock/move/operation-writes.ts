import { BSON, type Collection, type Document, type Filter } from 'mongodb'
import { readOwnFields } from '../documents/read-each.js'
import { hasToken, isNotHeld, isParked, LEASE_FIELDS, PUT_TO_SLEEP } from '../lease/lease-state.js'
import { isRemovedPhase } from '../outbox/outbox.js'
import { historyWith } from '../record/history.js'
import { applyNextOfHolder, nextFields, stateInNext, withoutNext } from '../record/next.js'
import { PARKED_AT, TASK_LOCK_INIT_TIME } from '../terms/constants.js'
import { hasOurShape, inProgress, literal, progressAcrossPhases, progressIfOurs, type Terms } from '../terms/terms.js'
import { DUE_AND_NOBODYS } from './owner-writes.js'
import { removeOne, type TellingLifecycle } from './told-removal.js'

/*
 * Writes of an operation on many documents (docs/bulk-operations.md), each to one document. A write leaves the operation's mark in the
 * document, in the same update as its effect, and matches no document that has it: repeated after a crash it does nothing twice.
 */

/** Which operation writes, and what it requires of a document besides what the write itself does. */
export interface Operating {
  readonly operation: string
  /** Of whoever began it, for the history. */
  readonly by: string
  /** What its documents were chosen by: one that doesn't match any more is left alone. */
  readonly where: Filter<Document>
}

/** Marks that a document keeps: of as many operations that were interrupted at the same time nothing is done twice. */
const MOST_MARKS = 5

const marksIn = ({ progress }: Terms): string => `${progress}.operations`

/** The operation that has set a document's state last. */
const stateByIn = ({ progress }: Terms): string => `${progress}.stateBy`

function withMark(terms: Terms, { operation }: Operating): Document {
  const marks = `$${marksIn(terms)}`
  const known = { $cond: [{ $isArray: marks }, marks, []] }
  return { $slice: [{ $concatArrays: [known, [literal(operation)]] }, -MOST_MARKS] }
}

/** The same of an undo: what acted last before the operation that it undoes has acted last again. */
function withUndoMark(terms: Terms, { operation }: Operating, of: string, before: unknown): Document {
  const marks = `$${marksIn(terms)}`
  const known = { $cond: [{ $isArray: marks }, marks, []] }
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

type Write = [filter: Filter<Document>, update: Document[]]

/** What an operation does to one document, as the filter and the update of one write. */
export const operationWrites = {
  /** Ends its sleep. */
  wake(terms: Terms, id: unknown, operating: Operating): Write {
    const marked = { $mergeObjects: [`$${terms.progress}`, { operations: withMark(terms, operating) }] }
    const update = [
      { $set: { lockedAt: TASK_LOCK_INIT_TIME, ...progressIfOurs(terms, marked) } },
      { $unset: `${terms.progress}.resumeAt` },
    ]
    return [unmarked(terms, id, operating, PUT_TO_SLEEP, isNotHeld(terms)), update]
  },

  /** Gives it another go, if it is parked. */
  unpark(terms: Terms, id: unknown, operating: Operating): Write {
    const progress = `$${terms.progress}`
    const { operation, by } = operating
    const history = historyWith(terms, { outcome: 'owner', reason: `unparked (${operation})`, by })
    const begunAnew = { attempts: 0, claims: 0, history, operations: withMark(terms, operating) }
    const isOurs = { $and: [{ $eq: [{ $type: progress }, 'object'] }, { $eq: [{ $type: '$phase' }, 'string'] }] }
    const update = [
      { $set: { ...DUE_AND_NOBODYS, [terms.progress]: { $mergeObjects: [progress, begunAnew] } } },
      { $unset: `${terms.progress}.error` },
    ]
    return [
      unmarked(terms, id, operating, { lockedBy: null, lockedAt: { $gte: PARKED_AT } }, { $expr: isOurs }),
      update,
    ]
  },

  /** Sets what its owner wants, even while it is held. */
  setState(terms: Terms, id: unknown, operating: Operating, state: string | undefined): Write {
    const marks = { operations: withMark(terms, operating), stateBy: literal(operating.operation) }
    return [unmarked(terms, id, operating), stateUpdate(terms, state, marks)]
  },

  /** Has it begin again: in a phase, at a step, with other fields of its owner's; `$phase`: where it is. Not while it is held. */
  redo(terms: Terms, id: unknown, operating: Operating, { phase, step, set }: Redo): Write {
    const { operation, by } = operating
    const history = historyWith(terms, {
      outcome: 'owner',
      reason: `redone (${operation})`,
      by,
      ...(phase && { to: phase }),
    })
    const now = terms.protocol.now()
    const begunAnew = {
      ...{ since: now, attempts: 0, claims: 0, history, operations: withMark(terms, operating) },
      ...(step !== undefined && { step: literal(step) }),
    }
    const fields = Object.fromEntries(Object.entries(set).map(([field, value]) => [field, literal(value)]))
    const moved = {
      ...{ ...fields, ...DUE_AND_NOBODYS, updatedAt: now, ...(phase && { phase: literal(phase) }) },
      [terms.progress]: withoutNext({ $mergeObjects: [progressAcrossPhases(terms), begunAnew] }),
    }
    // What inserts have left was there before: it lies under what this sets.
    const left = { $replaceWith: { $mergeObjects: ['$$ROOT', nextFields(terms)] } }
    return [unmarked(terms, id, operating, { $expr: hasOurShape(terms) }, isNotHeld(terms)), [left, { $set: moved }]]
  },

  /** Moves it to another phase as a rename does: its sleep, its step and its deadline go on. Not while it is held. */
  migrate(terms: Terms, id: unknown, operating: Operating, phase: string): Write {
    const { operation, by } = operating
    const history = historyWith(terms, { outcome: 'owner', reason: `moved (${operation})`, by, to: phase })
    const marked = { $mergeObjects: [`$${terms.progress}`, { history, operations: withMark(terms, operating) }] }
    const moved = { phase: literal(phase), [terms.progress]: marked }
    const elsewhere = { phase: { $ne: phase } }
    return [
      unmarked(terms, id, operating, elsewhere, { $expr: hasOurShape(terms) }, isNotHeld(terms)),
      [{ $set: moved }, applyNextOfHolder(terms), { $unset: 'lockedBy' }],
    ]
  },

  /** Sets a state back, if what an operation has set still stands, and no other one has set it since. */
  setStateBack(terms: Terms, id: unknown, operating: Operating, { of, before, wanted, state }: StateBack): Write {
    const stands = { state: { $eq: state, $not: { $type: 'array' } } }
    // One of an earlier version has left no name.
    const isLast: Filter<Document> = { [stateByIn(terms)]: { $in: [of, null] } }
    const { stateBy } = before.progress
    const operations = withUndoMark(terms, operating, of, before.operations)
    const update = stateUpdate(terms, wanted, { operations, ...(stateBy != null && { stateBy: literal(stateBy) }) })
    const unnamed = stateBy == null ? [{ $unset: stateByIn(terms) }] : []
    return [unmarked(terms, id, operating, stands, isLast), [...update, ...unnamed]]
  },

  /**
   * Puts it back to where it was before an operation, if that was the last one to act on it and no step of it has begun since, and nobody
   * has moved it, answered its question or changed what the operation has set. What others than its holders write in `progress` stays as it is.
   */
  putBack(terms: Terms, id: unknown, operating: Operating, { of, before, set, phase, wakes }: PutBack): Write {
    const { operation, by } = operating
    const { fence, progress, fields, operations, ...own } = before
    const history = historyWith(terms, {
      outcome: 'owner',
      reason: `undone: ${of} (${operation})`,
      by,
      to: before.phase,
    })
    const marked = { history, operations: withUndoMark(terms, operating, of, operations) }
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

const stateUpdate = (terms: Terms, state: unknown, marks: Document): Document[] => [
  {
    $set: {
      state: state === undefined ? '$$REMOVE' : literal(state),
      ...progressIfOurs(terms, { $mergeObjects: [`$${terms.progress}`, marks] }),
    },
  },
  { $unset: stateInNext(terms) },
]

/** From where a document begins again. */
export interface Redo {
  readonly phase: string | undefined
  readonly step: string | undefined
  readonly set: Document
}

/** Fields of `progress` that are written while nobody holds the document, and that no operation writes. */
const OTHERS = ['outbox', 'waiters', 'next']
const without = (progress: Document): Document =>
  Object.fromEntries(Object.entries(progress).filter(([field]) => !OTHERS.includes(field)))

/** What a document was before an operation, as far as the operation may change it. */
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
  /** What that operation has set. */
  readonly state: string
}

export interface PutBack {
  /** The operation that is undone. */
  readonly of: string
  readonly before: Before
  /** What that has set. */
  readonly set: Document
  /** The phase in which it left the document. */
  readonly phase: string
  /** Whether it made the document due. */
  readonly wakes: boolean
}

/** What an operation may have to put back of a document that was read. */
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

/** The state that its owner wants of a document that was read: what an insert has left for it is newer. */
export const stateWanted = (document: Document, terms: Pick<Terms, 'progress'>): unknown =>
  valueAt(document, stateInNext(terms)) ?? document['state']

/** Matches a document that is as it was read, in what an operation may have to put back of it. */
export function isAsRead(document: Document, terms: Terms, what: 'state' | readonly string[]): Filter<Document> {
  const isOurs = document[terms.progress]?.constructor === Object
  const ofState = ['state', ...(isOurs ? [stateInNext(terms), stateByIn(terms), marksIn(terms)] : [])]
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

/** Whether an operation may have acted on a document, and the latest of those that have since are all that it knows. */
export const isForgotten = (document: Document, { progress }: Pick<Terms, 'progress'>, operation: string): boolean => {
  const marks: unknown = (document[progress] as Document | undefined)?.['operations']
  return Array.isArray(marks) && marks.length >= MOST_MARKS && !marks.includes(operation)
}

/** Whether an operation is among the latest that acted on a document. */
export const wasActedOn = (document: Document, { progress }: Pick<Terms, 'progress'>, operation: string): boolean => {
  const marks: unknown = (document[progress] as Document | undefined)?.['operations']
  return Array.isArray(marks) && marks.includes(operation)
}

/**
 * Removes one of an operation's documents, if nobody holds it; whether it did. It needs no mark: what is removed is in no phase in which documents
 * are selected.
 */
export async function removeByOperation(
  documents: Collection,
  terms: Terms,
  telling: TellingLifecycle | undefined,
  id: unknown,
  operating: Operating,
): Promise<boolean> {
  const { operation, by } = operating
  const { $and } = unmarked(terms, id, operating)
  const which = { _id: id, unlessHeld: true, where: { $and } }
  return (await removeOne(documents, terms, telling, which, { by, reason: `removed (${operation})` })) !== undefined
}

/** Why an operation's write matched nothing; `done`: it had been done before. */
export type Unmatched = 'done' | 'gone' | 'held' | 'parked' | 'changed'

/** What became of a document that an operation's write didn't match. */
export async function whyUnmatched(
  documents: Collection,
  terms: Terms,
  id: unknown,
  operation: string,
): Promise<Unmatched> {
  const projection = { ...LEASE_FIELDS, phase: 1, [marksIn(terms)]: 1 }
  const [found] = await readOwnFields((how) =>
    documents.find({ _id: id as never }, { projection, limit: 1, ...how }).toArray(),
  )
  if (!found) return 'gone'
  const marks: unknown = found[terms.progress]?.operations
  if (Array.isArray(marks) && marks.includes(operation)) return 'done'
  if (isRemovedPhase(found['phase'])) return 'gone'
  if (hasToken(found)) return 'held'
  return isParked(found) ? 'parked' : 'changed'
}

/**
 * The types that an `_id` may have, in the order in which the server sorts them, each with its number in BSON. A comparison in a filter only
 * finds values of the same type.
 */
const ID_TYPES: readonly (readonly [names: readonly string[], numbers: readonly number[]])[] = [
  [['minKey'], [0xff]],
  [['null'], [0x0a]],
  [
    ['double', 'int', 'long', 'decimal'],
    [0x01, 0x10, 0x12, 0x13],
  ],
  [
    ['string', 'symbol'],
    [0x02, 0x0e],
  ],
  [['object'], [0x03]],
  [['binData'], [0x05]],
  [['objectId'], [0x07]],
  [['bool'], [0x08]],
  [['date'], [0x09]],
  [['timestamp'], [0x11]],
  [['dbPointer'], [0x0c]],
  [['javascript'], [0x0d]],
  [['javascriptWithScope'], [0x0f]],
  [['maxKey'], [0x7f]],
]

/** The documents that come after one in the order of `_id`, of whatever types they are. */
export function afterId(id: unknown): Filter<Document> {
  const number = BSON.serialize({ id })[4]!
  const at = ID_TYPES.findIndex(([, numbers]) => numbers.includes(number))
  const later = ID_TYPES.slice(at + 1).flatMap(([names]) => names)
  const isNoNumber = typeof id === 'number' && Number.isNaN(id) // the first of the numbers, to which nothing compares
  const ofItsType = isNoNumber ? { _id: { $type: 'number', $ne: id } } : { _id: { $gt: id } }
  return { $or: [ofItsType as Filter<Document>, { _id: { $type: later } } as unknown as Filter<Document>] }
}
