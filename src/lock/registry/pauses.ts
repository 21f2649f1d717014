import type { Collection, Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { readOwnFields } from '../documents/read.js'
import { canBeId } from '../documents/storable.js'
import { idKey, idText, isValid } from '../documents/values.js'
import { arrayAt, isDate, LIFECYCLES_COLLECTION, literal } from '../terms/terms.js'

/**
 * The target of a pause. `all` is a pause of every lifecycle that there was then, and is resumed as such: it neither ends nor replaces a
 * lifecycle's own pause.
 */
export type PauseTarget =
  | { readonly what: 'all' | 'lifecycle' }
  | { readonly what: 'phase'; readonly phase: string }
  | { readonly what: 'document'; readonly _id: unknown }

/** A pause as it is in force. Times are the server's. */
export type Pause = PauseTarget & {
  readonly by: string
  readonly reason: string | null
  readonly since: Date
  /** The time when it ends without a resume; null: it needs one. */
  readonly until: Date | null
}

/** The most pauses of one lifecycle at a time: each look and claim leaves out the documents by name. */
export const MOST_PAUSES = 200

/** Reads the stored pauses, including those that are over. A person may have put anything there: other values pause nothing. */
export function storedPauses(stored: unknown): readonly Pause[] {
  if (!Array.isArray(stored)) return []
  return stored.slice(0, MOST_PAUSES).flatMap((one): Pause[] => {
    const target = targetOf(one)
    if (!target) return []
    const { by, reason, since, until } = one as Document
    return [
      {
        ...target,
        by: textOr(by, '?'),
        reason: textOr(reason, null),
        since: dateOr(since, new Date(0)),
        until: dateOr(until, null),
      },
    ]
  })
}

function targetOf(one: unknown): PauseTarget | undefined {
  const { what, phase, _id } = (one ?? {}) as Document
  if (what === 'all' || what === 'lifecycle') return { what }
  if (what === 'phase') return typeof phase === 'string' ? { what, phase } : undefined
  return what === 'document' && canBeId(_id) ? { what, _id } : undefined
}

const textOr = <Else>(value: unknown, otherwise: Else) => (typeof value === 'string' ? value : otherwise)
const dateOr = <Else>(value: unknown, otherwise: Else) => (value instanceof Date && isValid(value) ? value : otherwise)

/** True if it is in force at a time of the server's. */
export const isInForce = ({ until }: Pause, now: Date): boolean => until === null || until > now

/** A pause in one line: `order, phase Packing: paused by ana until 2026-12-01T08:00:00.000Z: the printer is broken`. */
export function pauseText(lifecycle: string, pause: Pause): string {
  const until = pause.until ? ` until ${pause.until.toISOString()}` : ''
  return `${pauseTarget(lifecycle, pause)}: paused by ${pause.by}${until}${pause.reason === null ? '' : `: ${pause.reason}`}`
}

/** Puts the target of a pause in words: `order, phase Packing`. */
export function pauseTarget(lifecycle: string, target: PauseTarget): string {
  if (target.what === 'phase') return `${lifecycle}, phase ${target.phase}`
  return target.what === 'document' ? `${lifecycle} ${idText(target._id)}` : lifecycle
}

/** The paused parts of a lifecycle at one moment. */
export class Paused {
  static readonly nothing = new Paused([])
  /** The ids of single documents. */
  readonly ids: readonly unknown[]
  /** True if the whole lifecycle is paused. */
  readonly isWhole: boolean
  private readonly phases: ReadonlySet<string>
  private readonly keys: ReadonlySet<string>

  constructor(readonly pauses: readonly Pause[]) {
    this.ids = pauses.flatMap((pause) => (pause.what === 'document' ? [pause._id] : []))
    this.isWhole = pauses.some(({ what }) => what === 'all' || what === 'lifecycle')
    this.phases = new Set(pauses.flatMap((pause) => (pause.what === 'phase' ? [pause.phase] : [])))
    this.keys = new Set(this.ids.map(idKey))
  }

  /** The pauses that a document is under, the widest first. */
  of(phase: unknown, id: unknown): readonly Pause[] {
    const { pauses } = this
    return [
      ...pauses.filter(({ what }) => what === 'all' || what === 'lifecycle'),
      ...pauses.filter((pause) => pause.what === 'phase' && pause.phase === phase),
      ...pauses.filter((pause) => pause.what === 'document' && idKey(pause._id) === idKey(id)),
    ]
  }

  /** True if no document of a phase may be worked on. */
  has(phase: string): boolean {
    return this.isWhole || this.phases.has(phase)
  }

  /** True if a document in a phase may not be worked on. */
  hasDocument(phase: string, id: unknown): boolean {
    return this.has(phase) || (this.keys.size > 0 && this.keys.has(idKey(id)))
  }
}

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

const lifecyclesOf = (db: Db): Collection<Document & { _id: string }> => protocolCollection(db, LIFECYCLES_COLLECTION)
