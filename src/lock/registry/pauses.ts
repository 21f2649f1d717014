import type { Db, Document } from 'mongodb'
import { readOwnFields } from '../documents/read.js'
import { arrayAt, isDate, literal } from '../terms/terms.js'
import { isInForce, lifecyclesOf, MOST_PAUSES, type Pause, Paused, type PauseTarget, storedPauses } from './in-force.js'

const known = arrayAt('$pauses')

/*
 * An operation on many documents leaves a mark beside the pauses that it adds or ends, in the same update, and requires that the mark isn't
 * there. Invariant: an operation pauses (or resumes) each of its documents at most once, however often its page is repeated and even if a person
 * has resumed (or paused) the document since. The mark outlives the pause; no look reads it.
 */

/** The marks that are kept: for five pages of 200 under way at the same time nothing is done twice. */
const MOST_MARKS = 1_000
const withMark = (mark: string | undefined): Document =>
  mark === undefined
    ? {}
    : { pauseMarks: { $slice: [{ $concatArrays: [arrayAt('$pauseMarks'), [literal(mark)]] }, -MOST_MARKS] } }
const unmarked = (mark: string | undefined): Document => (mark === undefined ? {} : { pauseMarks: { $ne: mark } })

/** Matches, in `$filter` over the stored pauses, those of a target. */
function isOf(target: PauseTarget): Document {
  const isWhat = { $eq: ['$$this.what', target.what] }
  if (target.what === 'phase') return { $and: [isWhat, { $eq: ['$$this.phase', literal(target.phase)] }] }
  // To an expression 1 and a Long 1 are the same, as to an _id.
  return target.what === 'document' ? { $and: [isWhat, { $eq: ['$$this._id', literal(target._id)] }] } : isWhat
}

/** The forward step of the server's clock that isn't confirmed, as a replica has stored it beside the pauses: it ends none. */
const heldMs = {
  $cond: [
    { $and: [isDate('$clockStep.until'), { $gt: ['$clockStep.until', '$$NOW'] }, { $isNumber: '$clockStep.ms' }] },
    '$clockStep.ms',
    0,
  ],
}
const isOver = { $and: [isDate('$$this.until'), { $lte: ['$$this.until', { $subtract: ['$$NOW', heldMs] }] }] }

/** The end of a new pause: at a time of the server's, after some time, or when it is resumed. */
export type PauseEnd = Date | { readonly afterMs: number } | null

export interface NewPause {
  readonly target: PauseTarget
  readonly by: string
  readonly reason: string | null
  readonly end: PauseEnd
}

/** The end of a pause, as an expression. */
export const endExpression = (end: PauseEnd): Document =>
  end !== null && 'afterMs' in end ? { $add: ['$$NOW', end.afterMs] } : literal(end)

/** The outcome of a request to pause something of one lifecycle. */
export type PauseVerdict =
  /** `before`: the pauses of the same target before, by anyone. */
  | { readonly kind: 'paused'; readonly pause: Pause; readonly before: readonly Pause[] }
  /** No replica has run this lifecycle yet. */
  | { readonly kind: 'notRegistered' }
  /** It has {@link MOST_PAUSES} already. */
  | { readonly kind: 'tooMany' }

/*
 * Invariant: a pause never ends or changes because of another person's request. It belongs to the person who asked for it, and two people's
 * pauses of the same target are two. So a target stays paused until the last of them has ended.
 */

/** Those of a target among the stored pauses that are in force. */
const inForceOf = (target: PauseTarget): Document => ({
  $filter: { input: known, cond: { $and: [{ $not: [isOver] }, isOf(target)] } },
})

/**
 * Pauses something of a lifecycle; an earlier pause of the same by the same person is replaced. In force on each replica with its next look.
 * @param mark a target that an operation has marked with it is left unchanged: `marked`
 */
export async function addPause(db: Db, lifecycle: string, pause: NewPause): Promise<PauseVerdict>
export async function addPause(
  db: Db,
  lifecycle: string,
  pause: NewPause,
  mark: string,
): Promise<PauseVerdict | { readonly kind: 'marked' }>
export async function addPause(
  db: Db,
  lifecycle: string,
  { target, by, reason, end }: NewPause,
  mark?: string,
): Promise<PauseVerdict | { readonly kind: 'marked' }> {
  const isOwn = { $and: [isOf(target), { $eq: ['$$this.by', literal(by)] }] }
  const others = { $filter: { input: known, cond: { $not: [{ $or: [isOver, isOwn] }] } } }
  const until = endExpression(end)
  const { what, ...named } = target
  const pause = {
    ...{ what: literal(what), by: literal(by), reason: literal(reason), since: '$$NOW', until },
    ...Object.fromEntries(Object.entries(named).map(([field, value]) => [field, literal(value)])),
  }
  const hasRoom = { $expr: { $lt: [{ $size: others }, MOST_PAUSES] } }
  const before = await lifecyclesOf(db).findOneAndUpdate(
    { _id: lifecycle, ...unmarked(mark), ...hasRoom },
    [{ $set: { pauses: { $concatArrays: [others, [pause]] }, ...withMark(mark) } }],
    { returnDocument: 'before', projection: { pauses: inForceOf(target), now: '$$NOW' } },
  )
  if (!before) {
    const isMarked = { $in: [literal(mark ?? null), arrayAt('$pauseMarks')] }
    const there = await lifecyclesOf(db).findOne({ _id: lifecycle }, { projection: { isMarked } })
    if (!there) return { kind: 'notRegistered' }
    return there['isMarked'] ? { kind: 'marked' } : { kind: 'tooMany' }
  }
  const since = before['now'] as Date
  const added = { ...target, by, reason, since, until: endOf(end, since) }
  return { kind: 'paused', pause: added, before: storedPauses(before['pauses']) }
}

/** The end of a pause that begins at a time. */
export const endOf = (end: PauseEnd, since: Date): Date | null =>
  end !== null && 'afterMs' in end ? new Date(since.getTime() + end.afterMs) : end

/** The owner of the pause to end. */
export interface Resuming {
  /** The person who wants it to end: their own pause is meant. If there is only one, that is meant, whoever asked for it. */
  readonly by?: string | undefined
  /** The owner whose pause is meant instead. */
  readonly of?: string | undefined
}

/** Among pauses of the same, the owner of the one that is meant; undefined: none. */
export const ownerMeant = <Owner extends string | null>(
  owners: readonly Owner[],
  { by, of }: Resuming,
): Owner | undefined =>
  of === undefined && owners.length === 1 ? owners[0] : owners.find((owner) => owner === (of ?? by ?? null))

/** The same as an expression over an array of pauses. */
export const ownerExpression = (pauses: Document, { by, of }: Resuming): Document => {
  const only = { $let: { vars: { one: { $first: pauses } }, in: '$$one.by' } }
  const isOnly = { $eq: [{ $size: pauses }, 1] }
  return of === undefined ? { $cond: [isOnly, only, literal(by ?? null)] } : literal(of)
}

/**
 * The pauses before, and the one that has ended. `ended` is undefined if there is more than one and none is the person's own, or if the named
 * owner has none.
 */
export interface ResumeVerdict {
  readonly before: readonly Pause[]
  readonly ended: Pause | undefined
}

/**
 * Ends one pause; undefined: there was none of that target in force.
 * @param mark a target that an operation has marked with it is left unchanged
 */
export async function removePause(
  db: Db,
  lifecycle: string,
  target: PauseTarget,
  whose: Resuming = {},
  mark?: string,
): Promise<ResumeVerdict | undefined> {
  const inForce = inForceOf(target)
  const left = {
    $let: {
      vars: { meant: ownerExpression(inForce, whose) },
      in: {
        $filter: {
          input: known,
          cond: { $not: [{ $or: [isOver, { $and: [isOf(target), { $eq: ['$$this.by', '$$meant'] }] }] }] },
        },
      },
    },
  }
  const found = await lifecyclesOf(db).findOneAndUpdate(
    { _id: lifecycle, ...unmarked(mark) },
    [{ $set: { pauses: left, ...withMark(mark) } }],
    { returnDocument: 'before', projection: { pauses: inForce } },
  )
  const before = storedPauses(found?.['pauses'])
  const owner = ownerMeant(
    before.map(({ by }) => by),
    whose,
  )
  return before.length === 0 ? undefined : { before, ended: before.find(({ by }) => by === owner) }
}

/** Reads the pauses in force, by lifecycle; those without any are absent. */
export async function readPauses(
  db: Db,
  lifecycles: readonly string[],
): Promise<{ readonly byLifecycle: ReadonlyMap<string, Paused>; readonly now: Date | undefined }> {
  const pipeline = [{ $match: { _id: { $in: [...lifecycles] } } }, { $project: { pauses: 1, now: '$$NOW' } }]
  const rows = await readOwnFields((how) => lifecyclesOf(db).aggregate(pipeline, how).toArray())
  const paused = rows.flatMap(({ _id, pauses, now }): [string, Paused][] => {
    const inForce = storedPauses(pauses).filter((pause) => isInForce(pause, now))
    return inForce.length > 0 ? [[String(_id), new Paused(inForce)]] : []
  })
  return { byLifecycle: new Map(paused), now: rows[0]?.['now'] }
}

/*
 * The pauses of something that has a document of its own, a limit or a schedule. `paused` is the pause that lasts longest, which alone is judged by what
 * begins work, also in earlier versions; `pauses` are all, one for each person, and count only while `paused` is one of them: else a person, or an
 * earlier version, has written `paused` since, and means that one alone.
 * Invariant: as for those of lifecycles, nobody's pause ends or changes because of what somebody else asks for.
 */

const isOverFor = (ms: number): Document => ({
  $and: [isDate('$$this.until'), { $lte: ['$$this.until', { $subtract: ['$$NOW', ms] }] }],
})
/** Where nobody said who asked for it: null. */
const owner = { $ifNull: ['$$this.by', null] }

/**
 * The pauses in force, as an expression.
 * @param written those that `paused` means where it isn't an object
 * @param overMs also those that have been over for no longer than this
 */
export function pausesBeside(written: Document | readonly Document[], overMs = 0): Document {
  const alone = { $cond: [{ $eq: [{ $type: '$paused' }, 'object'] }, ['$paused'], written] }
  const all = arrayAt('$pauses')
  return {
    $filter: { input: { $cond: [{ $in: ['$paused', all] }, all, alone] }, cond: { $not: [isOverFor(overMs)] } },
  }
}

/** Pauses but for those of one owner. */
export const pausesOfOthers = (pauses: Document, by: string | null): Document => ({
  $filter: { input: pauses, cond: { $ne: [owner, literal(by)] } },
})

/**
 * Pauses with one more, in place of its owner's earlier one; with {@link MOST_PAUSES} of others they stay as they are.
 * @param pause as an expression, but for its owner
 * @param kept pauses that stay beside it while there is room: by default those in force
 */
export function withPause(pauses: Document, by: string | null, pause: Document, kept = pauses): Document {
  const added = by === null ? pause : { $mergeObjects: [pause, { by: literal(by) }] }
  const beside = (some: Document, otherwise: Document): Document => {
    const others = pausesOfOthers(some, by)
    return { $cond: [{ $lt: [{ $size: others }, MOST_PAUSES] }, { $concatArrays: [others, [added]] }, otherwise] }
  }
  return kept === pauses ? beside(pauses, pauses) : beside(kept, beside(pauses, pauses))
}

/** Pauses without the one that is meant, if it is among those in force. @param kept pauses that stay: by default those in force */
export const withoutPause = (pauses: Document, whose: Resuming, kept = pauses): Document => ({
  $let: {
    vars: { meant: { $ifNull: [ownerExpression(pauses, whose), null] } },
    in: { $filter: { input: kept, cond: { $ne: [owner, '$$meant'] } } },
  },
})

/** The pause that lasts longest: one without an end for ever. */
const longest: Document = {
  $reduce: {
    input: '$pauses',
    initialValue: { $first: '$pauses' },
    in: {
      $cond: [
        {
          $and: [
            isDate('$$value.until'),
            { $or: [{ $not: [isDate('$$this.until')] }, { $gt: ['$$this.until', '$$value.until'] }] },
          ],
        },
        '$$this',
        '$$value',
      ],
    },
  },
}
const isNone: Document = { $eq: [{ $size: '$pauses' }, 0] }

/** The stages of an update that stores these pauses, and no others. */
export const storePauses = (pauses: Document): Document[] => [
  { $set: { pauses } },
  { $set: { paused: { $cond: [isNone, '$$REMOVE', longest] } } },
  { $set: { pauses: { $cond: [isNone, '$$REMOVE', '$pauses'] } } },
]
