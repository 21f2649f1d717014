import type { Collection, Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { idKey, idText } from '../documents/id-key.js'
import { readOwnFields } from '../documents/read-each.js'
import { canBeId } from '../documents/storable.js'
import { isValid } from '../documents/type-name.js'
import { LIFECYCLES_COLLECTION } from './constants.js'
import { isDate, literal } from './terms.js'

/**
 * What is paused: `all` is one with every lifecycle that there was then, and is resumed as such, so that it neither ends nor replaces a
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
  /** When it ends by itself; null: when somebody resumes it. */
  readonly until: Date | null
}

/** The most pauses of one lifecycle at a time: each look and claim leaves out the documents by name. */
export const MOST_PAUSES = 200

/** The pauses among what is stored, those that are over too. A person may have put anything there: what isn't one pauses nothing. */
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

/** Whether it is in force at a time of the server's. */
export const isInForce = ({ until }: Pause, now: Date): boolean => until === null || until > now

/** A pause in one line: `order, phase Packing: paused by ana until 2026-12-01T08:00:00.000Z: the printer is broken`. */
export function pauseText(lifecycle: string, pause: Pause): string {
  const until = pause.until ? ` until ${pause.until.toISOString()}` : ''
  return `${pauseTarget(lifecycle, pause)}: paused by ${pause.by}${until}${pause.reason === null ? '' : `: ${pause.reason}`}`
}

/** What is paused, in words: `order, phase Packing`. */
export function pauseTarget(lifecycle: string, target: PauseTarget): string {
  if (target.what === 'phase') return `${lifecycle}, phase ${target.phase}`
  return target.what === 'document' ? `${lifecycle} ${idText(target._id)}` : lifecycle
}

/** What of a lifecycle is paused at one moment. */
export class Paused {
  static readonly nothing = new Paused([])
  /** The ids of single documents. */
  readonly ids: readonly unknown[]
  /** Whether the whole lifecycle is. */
  readonly isWhole: boolean
  private readonly phases: ReadonlySet<string>
  private readonly keys: ReadonlySet<string>

  constructor(readonly pauses: readonly Pause[]) {
    this.ids = pauses.flatMap((pause) => (pause.what === 'document' ? [pause._id] : []))
    this.isWhole = pauses.some(({ what }) => what === 'all' || what === 'lifecycle')
    this.phases = new Set(pauses.flatMap((pause) => (pause.what === 'phase' ? [pause.phase] : [])))
    this.keys = new Set(this.ids.map(idKey))
  }

  /** The pause that a document is under, the widest one first; undefined: none. */
  of(phase: unknown, id: unknown): Pause | undefined {
    const { pauses } = this
    const whole = pauses.find(({ what }) => what === 'all' || what === 'lifecycle')
    const ofPhase = whole ?? pauses.find((pause) => pause.what === 'phase' && pause.phase === phase)
    return ofPhase ?? pauses.find((pause) => pause.what === 'document' && idKey(pause._id) === idKey(id))
  }

  /** Whether no document of a phase may be worked on. */
  has(phase: string): boolean {
    return this.isWhole || this.phases.has(phase)
  }

  /** Whether a document in a phase may not be worked on. */
  hasDocument(phase: string, id: unknown): boolean {
    return this.has(phase) || (this.keys.size > 0 && this.keys.has(idKey(id)))
  }
}

const arrayAt = (path: string): Document => ({ $cond: [{ $isArray: path }, path, []] })
const known = arrayAt('$pauses')

/*
 * What an operation on many documents has paused or resumed leaves a mark beside the pauses, in the same update, and requires that it isn't
 * there. Invariant: an operation pauses (or resumes) each of its documents at most once, however often its page is repeated and whoever has
 * resumed (or paused) the document meanwhile. The mark outlives the pause; no look reads it.
 */

/** Of as many pages of 200 that are under way at the same time nothing is done twice: five. */
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

/** How far the server's clock has stepped forward, as a replica has stored beside the pauses, without that being confirmed: it ends none. */
const heldMs = {
  $cond: [
    { $and: [isDate('$clockStep.until'), { $gt: ['$clockStep.until', '$$NOW'] }, { $isNumber: '$clockStep.ms' }] },
    '$clockStep.ms',
    0,
  ],
}
const isOver = { $and: [isDate('$$this.until'), { $lte: ['$$this.until', { $subtract: ['$$NOW', heldMs] }] }] }

/** When a new pause ends: at a time of the server's, after so long, or when it is resumed. */
export type PauseEnd = Date | { readonly afterMs: number } | null

export interface NewPause {
  readonly target: PauseTarget
  readonly by: string
  readonly reason: string | null
  readonly end: PauseEnd
}

/** When a pause ends, as an expression. */
export const endExpression = (end: PauseEnd): Document =>
  end !== null && 'afterMs' in end ? { $add: ['$$NOW', end.afterMs] } : literal(end)

/** What became of a request to pause something of one lifecycle. */
export type PauseVerdict =
  | { readonly kind: 'paused'; readonly pause: Pause; readonly now: Date }
  /** No replica has run this lifecycle yet. */
  | { readonly kind: 'notRegistered' }
  /** It has {@link MOST_PAUSES} already. */
  | { readonly kind: 'tooMany' }

/**
 * Pauses something of a lifecycle; a pause of the same is replaced. In force on each replica with its next look.
 * @param mark what an operation has marked so is left as it is by now: `marked`
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
  const others = { $filter: { input: known, cond: { $not: [{ $or: [isOver, isOf(target)] }] } } }
  const until = endExpression(end)
  const { what, ...named } = target
  const pause = {
    ...{ what: literal(what), by: literal(by), reason: literal(reason), since: '$$NOW', until },
    ...Object.fromEntries(Object.entries(named).map(([field, value]) => [field, literal(value)])),
  }
  const hasRoom = { $expr: { $lt: [{ $size: others }, MOST_PAUSES] } }
  const stored = await lifecyclesOf(db).findOneAndUpdate(
    { _id: lifecycle, ...unmarked(mark), ...hasRoom },
    [{ $set: { pauses: { $concatArrays: [others, [pause]] }, ...withMark(mark) } }],
    { returnDocument: 'after', projection: { pauses: 1 } },
  )
  if (!stored) {
    const isMarked = { $in: [literal(mark ?? null), arrayAt('$pauseMarks')] }
    const there = await lifecyclesOf(db).findOne({ _id: lifecycle }, { projection: { isMarked } })
    if (!there) return { kind: 'notRegistered' }
    return there['isMarked'] ? { kind: 'marked' } : { kind: 'tooMany' }
  }
  const last = storedPauses([(stored['pauses'] as unknown[]).at(-1)])[0]!
  return { kind: 'paused', pause: last, now: last.since }
}

/**
 * Ends a pause: what it was; undefined: there was none in force.
 * @param mark what an operation has marked so is left as it is by now
 */
export async function removePause(
  db: Db,
  lifecycle: string,
  target: PauseTarget,
  mark?: string,
): Promise<Pause | undefined> {
  const others = { $filter: { input: known, cond: { $not: [{ $or: [isOver, isOf(target)] }] } } }
  const before = await lifecyclesOf(db).findOneAndUpdate(
    { _id: lifecycle, ...unmarked(mark) },
    [{ $set: { pauses: others, ...withMark(mark) } }],
    { returnDocument: 'before', projection: { pauses: 1, now: '$$NOW' } },
  )
  if (!before) return undefined
  return storedPauses(before['pauses']).find((pause) => isSame(pause, target) && isInForce(pause, before['now']))
}

function isSame(pause: PauseTarget, target: PauseTarget): boolean {
  if (pause.what === 'phase') return target.what === 'phase' && target.phase === pause.phase
  if (pause.what === 'document') return target.what === 'document' && idKey(target._id) === idKey(pause._id)
  return pause.what === target.what
}

/** The pauses in force, by lifecycle; those without any are absent. */
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
