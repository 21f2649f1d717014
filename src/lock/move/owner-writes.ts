import type { Collection, Document, Filter, UpdateOptions } from 'mongodb'
import { onClaimIndex, readOwnFields } from '../documents/read.js'
import { perUpdate, updateNamed } from '../documents/write.js'
import { isFromTheFuture } from '../lease/future-leases.js'
import {
  hasToken,
  isNotHeld,
  isParked,
  LEASE_FIELDS,
  NOT_PARKED,
  PUT_TO_SLEEP,
  WITHOUT_TOKEN,
} from '../lease/lease-state.js'
import { isRemovedPhase, outboxAfterPark } from '../outbox/outbox.js'
import { pendingState } from '../record/pending-insert.js'
import { historyWith } from '../record/step-end.js'
import { hasOurShape, literal, PARKED_AT, perDocument, TASK_LOCK_INIT_TIME, type Terms } from '../terms/terms.js'

/*
 * Writes to documents by processes that don't hold them: owners, operators, and replicas on their behalf. Each is one write that the server
 * judges by the lease fields, so that it can't conflict with a holder. The two that do take a document away also remove `lockedBy`, so that the
 * holder's late writes match nothing.
 */

/** A write to one document: the condition and the update. An operation on many documents adds conditions and marks of its own to an owner's. */
export type Write = [filter: Filter<Document>, update: Document[]]

/** Inside a transaction of the caller's, or without one. */
export type OwnerWriteOptions = Pick<UpdateOptions, 'session'>

/** The reason that an owner's write changed nothing. */
export type Unwritten = 'notFound' | 'held' | 'parked' | 'notParked'

/** Due immediately, even if it is held: for an update by which an owner changes the work. */
export const DUE_AND_NOBODYS: Document = { lockedAt: TASK_LOCK_INIT_TIME, lockedBy: '$$REMOVE' }

/** Due since now, because a person or an owner says so: a free document is due since its `updatedAt`. Its back-off begins anew, too. */
export const DUE_SINCE_NOW: Document = { updatedAt: '$$NOW' }

/** The filter of a write to one document, named at its top: a router looks for it there. */
const writeFilter = (id: unknown, condition: Filter<Document>) => ({ _id: id as never, $and: [condition] })

const writeTo = (documents: Collection, id: unknown, [condition, update]: Write, options: OwnerWriteOptions = {}) =>
  documents.updateOne(writeFilter(id, condition), update, options)

/** The stages that yield a document as a write would leave it; nothing where the write wouldn't match. As an aggregate they write nothing. */
export const writeStages = (id: unknown, [condition, update]: Write): Document[] => [
  { $match: writeFilter(id, condition) },
  ...update,
]

/**
 * Sets the owner's state, even while the document is held: a state rule moves it once no replica holds it. The state of a queued insert is older.
 */
export async function setState(
  documents: Collection,
  terms: Pick<Terms, 'progress'>,
  id: unknown,
  state: string,
  options: OwnerWriteOptions = {},
  where: Filter<Document> = {},
): Promise<'done' | 'unchanged' | 'notFound'> {
  const { matchedCount, modifiedCount } = await writeTo(documents, id, [where, stateSet(terms, state)], options)
  if (matchedCount === 0) return 'notFound'
  return modifiedCount === 0 ? 'unchanged' : 'done'
}

/** The filter and the update of {@link wake}. */
export const wakeWrite = (terms: Terms, where: Filter<Document> = {}): Write => [
  { $and: [where, { ...WITHOUT_TOKEN, ...NOT_PARKED, ...notLegacyLease(terms) }] },
  woken(terms, DUE_SINCE_NOW),
]

/** Ends a document's sleep: it is due immediately. Does nothing if it is held or parked. */
export async function wake(
  documents: Collection,
  terms: Terms,
  id: unknown,
  options: OwnerWriteOptions = {},
  where: Filter<Document> = {},
): Promise<boolean> {
  const { matchedCount } = await writeTo(documents, id, wakeWrite(terms, where), options)
  return matchedCount > 0
}

/** A document that was seen asleep. */
interface Sleeper {
  readonly id: unknown
  readonly fence: unknown
}

/**
 * Ends the sleeps of documents in these phases. One that was claimed or woken since it was seen no longer matches.
 * @param reason the news that wakes them, stored with them
 * @returns the number of documents woken
 */
export async function wakeSleepers(
  documents: Collection,
  terms: Terms,
  phases: readonly string[],
  sleepers: readonly Sleeper[],
  reason?: { readonly source: string; readonly version: number },
): Promise<number> {
  const noted = reason && { [`${terms.progress}.heard`]: { ...reason, source: literal(reason.source), at: '$$NOW' } }
  const updates = perUpdate(documents, sleepers).map((some) => {
    const ids = some.map(({ id }) => id)
    const fences = some.map(({ fence }) => fence ?? null)
    const noStepSince = { $eq: [{ $ifNull: ['$fence', null] }, perDocument(ids, fences)] }
    const filter = {
      ...{ _id: { $in: ids as never[] }, phase: { $in: [...phases] }, ...PUT_TO_SLEEP },
      $and: [{ $expr: noStepSince }, notLegacyLease(terms)],
      // A dotted $set would destroy an owner's own field of this name.
      ...(reason && { [terms.progress]: { $type: 'object' } }),
    }
    return { ids, filter, update: woken(terms, noted) }
  })
  return (await updateNamed(documents, updates)).modifiedCount
}

/** The filter and the update of {@link unpark}. */
export const unparkWrite = (terms: Terms, by: string, where: Filter<Document> = {}): Write =>
  anotherGo(terms, { reason: 'unparked', by }, { $and: [where, PARKED_IDLE] })

/** Unparks a document, with its attempts and claims at 0. `by`: the person who did it, for the history. */
export async function unpark(
  documents: Collection,
  terms: Terms,
  id: unknown,
  by: string,
  options: OwnerWriteOptions = {},
  where: Filter<Document> = {},
): Promise<boolean> {
  return (await writeTo(documents, id, unparkWrite(terms, by, where), options)).matchedCount > 0
}

/**
 * Unparks all documents in these phases that are parked because of a bug of the program: one update of those that the claim index shows as parked
 * there.
 * @returns the number unparked
 */
export async function unparkBugs(
  documents: Collection,
  terms: Terms,
  phases: readonly string[],
  why: { readonly reason: string; readonly by: string },
): Promise<number> {
  const isBug = { phase: { $in: [...phases] }, [`${terms.progress}.error.bugs`]: { $gte: 1 } }
  const [filter, update] = anotherGo(terms, why, { $and: [PARKED_IDLE, isBug] })
  const { modifiedCount } = await onClaimIndex(documents, (hint) => documents.updateMany(filter, update, { hint }))
  return modifiedCount
}

/** The same for a document under a lease that began in the future, when a person vouches that its holder is gone. */
export async function releaseFutureLease(
  documents: Collection,
  terms: Terms,
  id: unknown,
  by: string,
  options: OwnerWriteOptions = {},
  where: Filter<Document> = {},
): Promise<boolean> {
  const found = await leaseFieldsOf(documents, id, options)
  if (!found || !hasToken(found)) return false
  const write = freeingWrite(terms, found['lockedBy'], by, where)
  return (await writeTo(documents, id, write, options)).matchedCount > 0
}

/**
 * The filter and the update of {@link releaseFutureLease}.
 * @param lockedBy the holder that was read: a lease that wasn't seen is never freed
 */
export const freeingWrite = (terms: Terms, lockedBy: unknown, by: string, where: Filter<Document> = {}): Write => {
  const held = { lockedBy: { $eq: lockedBy }, $expr: isFromTheFuture }
  return anotherGo(terms, { reason: `freed from ${String(lockedBy)}`, by }, { $and: [where, held] })
}

/** Parked by Phaselock, not under a lease. */
export const PARKED_IDLE: Filter<Document> = { ...WITHOUT_TOKEN, lockedAt: { $gte: PARKED_AT } }

/** An unpark of a document that matches. @param marks fields of `progress` that it leaves besides */
export function anotherGo(
  terms: Terms,
  why: { readonly reason: string; readonly by: string },
  where: Filter<Document>,
  marks?: Document,
): Write {
  const progress = `$${terms.progress}`
  const history = historyWith(terms, { outcome: 'owner', ...why })
  const begunAnew = { $mergeObjects: [progress, { attempts: 0, claims: 0, history, ...marks }] }
  // A query by $type also matches the elements of an array.
  const isOurs = { $and: [{ $eq: [{ $type: progress }, 'object'] }, { $eq: [{ $type: '$phase' }, 'string'] }] }
  const due = { ...DUE_AND_NOBODYS, ...DUE_SINCE_NOW }
  const update = [{ $set: { ...due, [terms.progress]: begunAnew } }, { $unset: `${terms.progress}.error` }]
  return [{ $and: [where, { $expr: isOurs }] }, update]
}

/** The person who stops a document, and the error that says so. */
export interface StoppedBy {
  readonly by: string
  readonly error: { readonly name: string; readonly message: string }
}

/**
 * Stops a document that nobody holds until a person or its owner goes on with it. Does nothing if it is held, parked already, or in one of the phases
 * in which documents have ended: parked there it would never be removed.
 */
export async function parkIdle(
  documents: Collection,
  terms: Terms,
  id: unknown,
  ends: readonly string[],
  why: StoppedBy,
): Promise<boolean> {
  return (await writeTo(documents, id, idleParking(terms, ends, why))).matchedCount > 0
}

/** The condition and the update of {@link parkIdle}. */
export function idleParking(terms: Terms, ends: readonly string[], { by, error }: StoppedBy): Write {
  const history = historyWith(terms, { outcome: 'park', reason: error.message, by })
  const outbox = outboxAfterPark(terms, { by, reason: error.message })
  const stopped = { $mergeObjects: [`$${terms.progress}`, { claims: 0, error: literal(error), history }, outbox] }
  const gone = ['waitingFor', 'waitingOn', 'waitingSince', 'resumeAt', 'awaits'].map(
    (field) => `${terms.progress}.${field}`,
  )
  const isIdle = {
    $and: [{ phase: { $nin: [...ends] }, ...NOT_PARKED }, { $expr: hasOurShape(terms) }, isNotHeld(terms)],
  }
  const update = [{ $set: { lockedAt: PARKED_AT, lockedBy: '$$REMOVE', [terms.progress]: stopped } }, { $unset: gone }]
  return [isIdle, update]
}

/** Finds out why an owner's write changed nothing, by the document as it is now. */
export async function whyUnwritten(
  documents: Collection,
  id: unknown,
  options: OwnerWriteOptions = {},
): Promise<Unwritten> {
  return unwrittenTo(await leaseFieldsOf(documents, id, options))
}

/** The reason that a document, as it was read after that, was not written to. */
export function unwrittenTo(found: Document | undefined): Unwritten {
  if (!found || isRemovedPhase(found['phase'])) return 'notFound'
  if (hasToken(found)) return 'held'
  return isParked(found) ? 'parked' : 'notParked'
}

/** Reads what {@link unwrittenTo} judges. @param also a field to read besides */
export async function leaseFieldsOf(documents: Collection, id: unknown, options: OwnerWriteOptions, also?: string) {
  const projection = { ...LEASE_FIELDS, phase: 1, ...(also && { [also]: 1 }) }
  const [found] = await readOwnFields((how) =>
    documents.find({ _id: id as never }, { projection, limit: 1, ...how, ...options }).toArray(),
  )
  return found
}

/** An owner's state. @param fields others that it sets besides */
export const stateSet = (terms: Pick<Terms, 'progress'>, state: unknown, fields?: Document): Document[] => [
  { $set: { state: state === undefined ? '$$REMOVE' : literal(state), ...fields } },
  { $unset: pendingState(terms) },
]

/** The end of a sleep. @param fields others that it sets besides */
export const woken = (terms: Terms, fields: Document = {}): Document[] => [
  { $set: { lockedAt: TASK_LOCK_INIT_TIME, ...fields } },
  { $unset: `${terms.progress}.resumeAt` },
]

/** With legacy writers, which lease by `lockedAt` alone, only a document that says so is asleep: waking must not end a lease of theirs. */
const notLegacyLease = (terms: Terms): Filter<Document> => (terms.legacyWriters ? isNotHeld(terms) : {})
