import type { AggregateOptions, Collection, Document, Filter } from 'mongodb'
import { AS_IT_STANDS, COMMITTED, onIndex, type ReadEach, readEach } from '../documents/read.js'
import { withIds } from '../documents/values.js'
import { deleteNamed, type Refused, updateApart, updateAround, updateNamed } from '../documents/write.js'
import { redated } from '../lease/future-leases.js'
import { STEP_SLACK_MS } from '../lease/server-clock.js'
import { countAt, ID_INDEX, literal, PARKED_AT, perDocument } from '../terms/terms.js'
import { type EntryName, outboxIn, outboxIndex } from './outbox.js'

/** The outboxes of a lifecycle. */
export interface Outboxes {
  readonly collection: Collection
  /** The field that holds Phaselock's own. */
  readonly progress: string
  /** The callbacks that this process has: outboxes whose next entry is for another callback are left to other processes. */
  readonly callbacks: readonly EntryName[]
  /** Those of the lifecycle, and its {@link removedPhase}: documents in others are another's, whose callbacks have the same names. */
  readonly phases: readonly string[]
}

/** An outbox that is held to be delivered, under a token that no other delivery has. */
export interface Delivery {
  readonly id: unknown
  readonly token: string
  /** The process that took it before has never let go of it: it has ended, or hangs. */
  readonly isSuspect?: boolean
}

/** The most that the clocks of a set's members may differ from this process's estimate of the time. It only saves reading keys. */
const SLACK_MS = 60_000

/** The server's time as the replica knows it. */
export interface OutboxTime {
  readonly now: Date
  /** The size of an unconfirmed forward step of that clock: it ends no hold on an outbox. Default: 0. */
  readonly heldMs?: number | undefined
  /** Later no hold ends: the clock may have stepped since a look has seen it. Default: always. */
  readonly validUntil?: Date | undefined
}

/** The filter of due outboxes, for a look's question and for a search. */
export function outboxDue(of: Omit<Outboxes, 'collection'>, time: OutboxTime): Filter<Document> {
  const until = new Date(time.now.getTime() + SLACK_MS)
  return { ...isOpen(of), [`${of.progress}.outbox.dueAt`]: { $lte: until }, $expr: isDueBy(of, time) }
}

function isDueBy({ progress }: Pick<Outboxes, 'progress'>, { heldMs = 0, validUntil }: OutboxTime): Document {
  const [by, dueAt] = [`$${progress}.outbox.by`, `$${progress}.outbox.dueAt`]
  const isDue = { $lte: [dueAt, '$$NOW'] }
  if (heldMs === 0 && !validUntil) return isDue
  const isUnleased = { $eq: [{ $type: by }, 'missing'] }
  const isLetGo = { $lte: [dueAt, { $subtract: ['$$NOW', heldMs] }] }
  const isValid = validUntil ? [{ $lte: ['$$NOW', validUntil] }] : []
  return { $and: [isDue, { $or: [isUnleased, { $and: [isLetGo, ...isValid] }] }] }
}

const isOpen = ({ progress, callbacks, phases }: Omit<Outboxes, 'collection'>): Filter<Document> => ({
  [`${progress}.outbox.next`]: { $in: [...callbacks] },
  phase: { $in: [...phases] },
})

/**
 * Restarts the leases of outboxes that were held before the server's clock stepped back. By that clock they last longer by the whole step, even
 * those whose holder is gone. A live holder loses nothing, because by its own clock it has no more than that.
 * @returns the number of outboxes
 */
export async function redateOutboxes(of: Outboxes, now: Date, leaseMs: number): Promise<number> {
  const dueAt = `${of.progress}.outbox.dueAt`
  const isFromTheFuture = { $gt: [`$${dueAt}`, { $add: ['$$NOW', leaseMs + STEP_SLACK_MS] }] }
  const held = {
    ...isOpen(of),
    [`${of.progress}.outbox.by`]: { $type: 'string' },
    [dueAt]: { $gt: now, $lt: PARKED_AT },
    $expr: isFromTheFuture,
  } as Filter<Document>
  const begunAnew = { $set: { [dueAt]: { $add: ['$$NOW', leaseMs] } } }
  return redated(of.collection, held, begunAnew, outboxIndex(of.progress))
}

/** A kind of due outbox: untried ones, those whose last try has failed, or suspects ({@link Delivery}). */
export type DueKind = 'untried' | 'failed' | 'suspect'

/** Finds documents whose outbox is due, at most `limit`, the longest due first. */
export async function dueOutboxes(
  of: Outboxes,
  time: OutboxTime,
  limit: number,
  { kind, skipped = [] }: { readonly kind: DueKind; readonly skipped?: readonly unknown[] },
): Promise<readonly { readonly id: unknown; readonly tries: number }[]> {
  const tries = `${of.progress}.outbox.tries`
  const others = {
    ...(skipped.length > 0 && { _id: { $nin: [...skipped] as never[] } }),
    [`${of.progress}.outbox.by`]: { $exists: kind === 'suspect' },
    ...(kind === 'untried' && { [tries]: { $not: { $gt: 0 } } }),
    ...(kind === 'failed' && { [tries]: { $gt: 0 } }),
  }
  const sort = { [`${of.progress}.outbox.dueAt`]: 1 } as const
  const read = (hint: Document) =>
    of.collection
      .find({ ...outboxDue(of, time), ...others }, { projection: { [tries]: 1 }, hint, limit, sort, ...AS_IT_STANDS })
      .toArray()
  const found = await onIndex(of.collection, outboxIndex(of.progress), read)
  return found.map((document) => ({ id: document._id, tries: outboxIn(document[of.progress]).tries }))
}

interface Taking {
  readonly token: string
  readonly leaseMs: number
  /** The outcome was recorded by this process, which is the first to try, before others may. */
  readonly justStored: boolean
  readonly areSuspects?: boolean
  readonly time: OutboxTime
  readonly projection: Document | undefined
}

/**
 * Takes the outboxes of some documents for `leaseMs`, as far as they are due, and reads those that it has won. Suspects are only taken
 * separately, whatever has been recorded of them since.
 */
export async function takeOutboxes(
  of: Outboxes,
  ids: readonly unknown[],
  how: Taking,
): Promise<ReadEach & { readonly refused: readonly Refused[] }> {
  const { collection, progress } = of
  const box = `$${progress}.outbox`
  const isDue = isDueBy(of, how.time)
  const isNew = {
    $and: [{ $eq: [{ $type: `${box}.by` }, 'missing'] }, { $eq: [{ $type: `${box}.tries` }, 'missing'] }],
  }
  const matching = (some: readonly unknown[]) => ({
    ...withIds(some),
    ...(!how.areSuspects && { [`${progress}.outbox.by`]: { $exists: false } }),
    $and: [isOpen(of), { $expr: how.justStored ? { $or: [isDue, isNew] } : isDue }],
  })
  const taken = {
    [`${progress}.outbox.by`]: literal(how.token),
    [`${progress}.outbox.dueAt`]: { $add: ['$$NOW', how.leaseMs] },
    [`${progress}.outbox.tries`]: { $add: [countAt(`${box}.tries`), 1] },
  }
  const { matched, refused } = await updateAround(collection, ids, matching, [{ $set: taken }])
  if (matched === 0) return { documents: [], unreadable: [], refused }
  const { projection } = how
  const own = { ...withIds(ids), [`${progress}.outbox.by`]: how.token }
  // As a majority has it: an outcome that was stored after the take, and is undone, is never delivered.
  const reading = { hint: ID_INDEX, batchSize: ids.length + 1, ...COMMITTED, ...(projection && { projection }) }
  const read = await readEach(collection, own, reading, progress)
  return { ...read, refused }
}

/** A delivery whose entries have been delivered up to and including `seq`. The rest in its outbox is due immediately. */
export interface Delivered extends Delivery {
  readonly seq: number
  /** It was its last entry, and the document is in this phase, a {@link removedPhase}: it is deleted. */
  readonly removed?: string | undefined
}

/** The reason that an outbox is let go with its first entry undelivered. */
export type LetGo =
  /** The callback failed: tried again after a pause, or (null) when a person says so. `isNoTry`: it wasn't called this time. */
  | { readonly error: string; readonly pauseMs: number | null; readonly isNoTry?: true }
  /** It wasn't called: that counts as no try, and a suspect stays one. */
  | 'uncalled'

/** A delivery that ends with its first entry undelivered. */
export interface Undelivered extends Delivery {
  readonly why: LetGo
}

export type DeliveryEnd = Delivered | Undelivered

/**
 * Writes the ends of deliveries, as far as each outbox is still held under its token: takes out the entries that were delivered, deletes documents
 * whose last entry that was, and lets go of the outboxes.
 * @returns the number of delivered ones that were still held, and the documents that refused to be written: their outboxes stay held
 */
export async function endDeliveries(
  of: Outboxes,
  ends: readonly DeliveryEnd[],
): Promise<{ readonly matched: number; readonly refused: readonly Refused[] }> {
  const delivered = ends.filter((one) => 'seq' in one)
  const groups = Map.groupBy(delivered, ({ token, removed }) => `${removed ?? ''} ${token}`)
  const undelivered = ends.filter((one) => 'why' in one)
  const [letGone, ...written] = await Promise.all([
    letGo(of, undelivered),
    ...[...groups.values()].map((group) => takeOut(of, group)),
  ])
  const matched = written.reduce((sum, one) => sum + one.matched, 0)
  return { matched, refused: [...letGone, ...written.flatMap(({ refused }) => refused)] }
}

/** Takes out the delivered entries of outboxes that have the same token. */
async function takeOut(of: Outboxes, group: readonly Delivered[]) {
  const { token, removed } = group[0]!
  const ids = group.map(({ id }) => id)
  if (removed) {
    const matching = (some: readonly unknown[]) => ({ ...heldUnder(of, some, token), phase: removed })
    return { matched: await deleteNamed(of.collection, ids, matching), refused: [] }
  }
  const seqs = group.map(({ seq }) => seq)
  const update = [{ $set: withoutDelivered(of.progress, perDocument(ids, seqs)) }]
  return updateAround(of.collection, ids, (some) => heldUnder(of, some, token), update)
}

function withoutDelivered(progress: string, seq: Document): Document {
  const box = `$${progress}.outbox`
  const left = { $filter: { input: openOf(progress), as: 'one', cond: { $gt: ['$$one.seq', seq] } } }
  const next = { $let: { vars: { first: { $first: '$$left' } }, in: '$$first.callback' } }
  const goesOn = { seq: `${box}.seq`, open: '$$left', next, dueAt: '$$NOW' }
  const outbox = { $cond: [{ $eq: [{ $size: '$$left' }, 0] }, { seq: `${box}.seq` }, goesOn] }
  return { [`${progress}.outbox`]: { $let: { vars: { left }, in: outbox } } }
}

/** Lets go of outboxes, each separately. Returns the documents that refuse that. */
async function letGo(of: Outboxes, all: readonly Undelivered[]): Promise<readonly Refused[]> {
  const updates = all.map(({ id, token, isSuspect, why }) => {
    const update = [{ $set: afterLetGo(`${of.progress}.outbox`, why, isSuspect) }]
    return { id, filter: heldUnder(of, [id], token), update }
  })
  return (await updateApart(of.collection, updates)).refused
}

function afterLetGo(box: string, why: LetGo, isSuspect = false): Document {
  const set =
    why === 'uncalled'
      ? { dueAt: '$$NOW' }
      : { error: literal(why.error), dueAt: why.pauseMs === null ? PARKED_AT : { $add: ['$$NOW', why.pauseMs] } }
  const isNoTry = why === 'uncalled' || why.isNoTry
  const tries = isNoTry ? { tries: { $max: [0, { $subtract: [countAt(`$${box}.tries`), 1] }] } } : {}
  const by = isSuspect && why === 'uncalled' ? {} : { by: '$$REMOVE' }
  const fields = Object.entries({ ...set, ...tries, ...by })
  return Object.fromEntries(fields.map(([name, value]) => [`${box}.${name}`, value]))
}

/**
 * Carries out a person's decision about a document whose callbacks fail: the first one is tried again now, or given up for good.
 * @param entry the first one, as the person has seen it; `removed`: it is the last one of a document in this phase, which goes with it
 * @returns true if it is still the first, and isn't being delivered just now
 */
export async function retryOutbox(
  { collection, progress }: Pick<Outboxes, 'collection' | 'progress'>,
  id: unknown,
  { seq, skip, removed }: { readonly seq: number; readonly skip: boolean; readonly removed?: string | undefined },
): Promise<boolean> {
  const box = `${progress}.outbox`
  const isIdle = { $or: [{ [`${box}.by`]: { $exists: false } }, { $expr: { $lte: [`$${box}.dueAt`, '$$NOW'] } }] }
  const filter = { ...withIds([id]), [`${box}.open.0.seq`]: seq, $and: [isIdle] }
  if (skip && removed) return (await deleteNamed(collection, [id], () => ({ ...filter, phase: removed }))) > 0
  const retried = {
    [`${box}.dueAt`]: '$$NOW',
    [`${box}.tries`]: 0,
    [`${box}.by`]: '$$REMOVE',
  }
  const update = [{ $set: skip ? withoutDelivered(progress, literal(seq)) : retried }]
  return (await updateNamed(collection, [{ ids: [id], filter, update }])).matchedCount > 0
}

/** Reads documents with undelivered entries, in whatever phases, with the server's time. */
export function undeliveredOutboxes(
  { collection, progress, callbacks }: Omit<Outboxes, 'phases'>,
  limit: number,
  how: AggregateOptions,
) {
  const document = {
    _id: '$_id',
    phase: '$phase',
    updatedAt: '$updatedAt',
    [progress]: { outbox: `$${progress}.outbox` },
  }
  const pipeline = [
    { $match: { [`${progress}.outbox.next`]: { $in: [...callbacks] } } },
    { $limit: limit },
    { $project: { _id: 0, document, now: '$$NOW' } },
  ]
  return collection.aggregate(pipeline, how).toArray()
}

/** The entries of an outbox. A person may have put anything there. */
const openOf = (progress: string): Document => {
  const open = `$${progress}.outbox.open`
  return { $cond: [{ $isArray: open }, open, []] }
}

const heldUnder = ({ progress }: Outboxes, ids: readonly unknown[], token: string): Filter<Document> => ({
  ...withIds(ids),
  [`${progress}.outbox.by`]: token,
})
