import { BSON, type Collection, type Document, type Filter } from 'mongodb'
import { readOwnFields } from '../documents/read-each.js'
import { historyWith } from '../end/history.js'
import { hasToken, isNotHeld, isParked, LEASE_FIELDS, PUT_TO_SLEEP } from '../lease/lease-state.js'
import { PARKED_AT, TASK_LOCK_INIT_TIME } from '../terms/constants.js'
import { literal, progressIfOurs, type Terms } from '../terms/terms.js'
import { DUE_AND_NOBODYS } from './owner-writes.js'

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

function withMark(terms: Terms, { operation }: Operating): Document {
  const marks = `$${marksIn(terms)}`
  const known = { $cond: [{ $isArray: marks }, marks, []] }
  return { $slice: [{ $concatArrays: [known, [literal(operation)]] }, -MOST_MARKS] }
}

const unmarked = (terms: Terms, id: unknown, { operation, where }: Operating, ...also: Filter<Document>[]) => ({
  $and: [{ _id: id as never }, { [marksIn(terms)]: { $ne: operation } }, where, ...also],
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
    const marked = { $mergeObjects: [`$${terms.progress}`, { operations: withMark(terms, operating) }] }
    const update = [
      { $set: { state: state === undefined ? '$$REMOVE' : literal(state), ...progressIfOurs(terms, marked) } },
    ]
    return [unmarked(terms, id, operating), update]
  },
} as const

/** A filter by which one of an operation's documents is deleted, if nobody holds it. */
export const operationRemoval = (terms: Terms, id: unknown, operating: Operating): Filter<Document> =>
  unmarked(terms, id, operating, isNotHeld(terms))

/** Why an operation's write matched nothing; `done`: it had been done before. */
export type Unmatched = 'done' | 'gone' | 'held' | 'parked' | 'changed'

/** What became of a document that an operation's write didn't match. */
export async function whyUnmatched(
  documents: Collection,
  terms: Terms,
  id: unknown,
  operation: string,
): Promise<Unmatched> {
  const projection = { ...LEASE_FIELDS, [marksIn(terms)]: 1 }
  const [found] = await readOwnFields((how) =>
    documents.find({ _id: id as never }, { projection, limit: 1, ...how }).toArray(),
  )
  if (!found) return 'gone'
  const marks: unknown = found[terms.progress]?.operations
  if (Array.isArray(marks) && marks.includes(operation)) return 'done'
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
