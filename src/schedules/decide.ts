import { BSON } from 'mongodb'
import { STEP_SLACK_MS } from '../lock/index.js'
import { nearMisses } from './definition/near-misses.js'
import { type CheckedSchedule, readSchedule, YEAR_10000 } from './definition/read-schedule.js'
import { SCHEDULE_FIELDS, TIMING_FIELDS } from './definition/schedule-fields.js'
import { dateOf, type Edit, present, type RunDocument, runIdOf, type ScheduleDocument } from './documents.js'
import { dueTimes, jitterOf, nextDue } from './due.js'
import type { RunEndReason } from './observer.js'
import { pausedSince, pausedText, pauseOf, pauseWarnings } from './pauses.js'

export const SCHEDULE_PHASES = ['Active', 'Paused', 'Finished', 'Broken'] as const
/** The phases of a schedule's document (docs/schedules.md). */
export type SchedulePhase = (typeof SCHEDULE_PHASES)[number]

/** The maximum number of coalesced due times that get a record of their own: the latest ones. */
const MOST_COALESCED = 100
export const MOST_EDITS = 50
const MOST_OF_A_CHANGE = 10_000
const SHOWN_OF_A_CHANGE = 1_000

/** A run to be stored: Queued, or ended from the start. */
export interface NewRun extends RunDocument {
  readonly phase: 'Queued' | 'Skipped' | 'Missed'
}

/** The changes that a schedule needs. */
export interface Decision {
  readonly phase: SchedulePhase
  /** The runs to store before anything else; those that exist already stay as they are. */
  readonly runs: readonly NewRun[]
  readonly set: Partial<ScheduleDocument>
  /** When to look at it again; null: not before it is edited. */
  readonly wakeAt: Date | null
  /** Due times that had come and were dropped by an edit: each is Skipped. Absent if there are none. */
  readonly dropped?: { readonly why: RunEndReason; readonly runs: readonly NewRun[] }
}

type Stored = Readonly<ScheduleDocument> & {
  readonly createdAt?: unknown
  readonly progress?: { readonly history?: readonly { readonly at?: unknown }[] }
}

/**
 * Decides what a schedule needs at a moment of the server's clock: its runs, and when to look again. Uses no clock and no database, so two
 * replicas that look at the same document arrive at the same runs.
 */
export function decide(doc: Stored, now: Date): Decision {
  const fields = fieldsOf(doc)
  const known = knownOf(doc)
  const changed = known ? changedFields(known, fields) : []
  const changes = changesBetween(known ?? {}, fields, changed)
  const set: Partial<ScheduleDocument> = {
    // Even if only the order differs, because the search for edits compares the whole object.
    ...(known && textOf(known) === textOf(fields) ? {} : { known: fields }),
    ...changedWarnings(doc),
    ...(changed.length > 0 ? { edits: withEdit(doc.edits, { at: now, action: 'noticed', changes }) } : {}),
  }
  // The fields from which nextRunAt was planned; after an edit through the owner's methods, `known` is newer.
  const before = supersededOf(doc) ?? (known && { fields: known, at: now })
  if (doc.superseded) set.superseded = null
  const isAhead = isPlannedAhead(doc, now)
  const repeats = repeatsOf(doc, now, isAhead)
  if (repeats !== doc.repeats && (repeats || doc.repeats)) set.repeats = repeats ?? null
  const anchor = anchorOf(doc, now)
  const drop = (why: RunEndReason, reason: string, since = now) => {
    const until = before && (before.at < since ? before.at : since)
    const runs = before && until ? droppedRuns(doc, before.fields, until, anchor, { reason, now }) : []
    return runs.length > 0 ? { dropped: { why, runs } } : {}
  }
  const idle = (phase: SchedulePhase, wakeAt: Date | null, dropped: Pick<Decision, 'dropped'> = {}): Decision => {
    return { phase, runs: [], set: { ...set, nextRunAt: null }, wakeAt, ...dropped }
  }
  const read = readSchedule(fields)
  const problems = [...idProblems(doc._id), ...('problems' in read ? read.problems : [])]
  if (problems.length > 0 || !('schedule' in read)) {
    set.broken = problems.join('; ')
    return idle('Broken', null, drop('edited', `${EDITED}: it can't run any more`))
  }
  if (doc.broken) set.broken = null
  const { schedule } = read
  const pausedUntil = pauseOf(doc, now)
  if (!schedule.isActive) return idle('Paused', null, drop('deactivated', 'the schedule was deactivated'))
  if (pausedUntil !== undefined) return idle('Paused', pausedUntil, drop('paused', pausedText(doc), pausedSince(doc)))
  if (doc.paused) set.paused = null
  if (doc.paused && doc.pauses) set.pauses = null
  const pending = isAhead ? undefined : dateOf(doc.nextRunAt)
  const grid = repeats ? earlier(anchor, schedule, now) : anchor
  const goesOn = before && pending && isPlannedAlike(before.fields, fields, schedule, pending, anchor)
  const due = (goesOn ? pending : undefined) ?? firstDue(doc, schedule, now, grid)
  const dropped = goesOn || isAhead ? {} : drop('edited', `${EDITED}: it is planned anew from then on`)
  return { ...(due ? planned(doc, schedule, set, due, now, grid, repeats) : idle('Finished', null)), ...dropped }
}

const EDITED = 'the schedule was edited before this ran'

/** The fields from which `nextRunAt` was planned, and when they were replaced: left there by `upsert`. */
function supersededOf({ superseded }: Stored): ScheduleDocument['superseded'] | undefined {
  const { fields, at } = Object(superseded) as { fields?: unknown; at?: unknown }
  return typeof fields === 'object' && fields !== null && dateOf(at) ? superseded! : undefined
}

/** True if both sets of fields plan the same next three due times from a pending one on. So `'1h'` equals `3600`, and `1` equals `JAN`. */
function isPlannedAlike(
  before: object,
  fields: object,
  schedule: CheckedSchedule,
  pending: Date,
  anchor: Date,
): boolean {
  if (!changedFields(before, fields).some((name) => (TIMING_FIELDS as readonly string[]).includes(name))) return true
  const read = readSchedule(before as Record<string, unknown>)
  if ('problems' in read) return false
  let after = new Date(pending.getTime() - 1)
  for (let i = 0; i < 3; i += 1) {
    const [next, other] = [nextDue(schedule, after, anchor), nextDue(read.schedule, after, anchor)]
    if (next?.getTime() !== other?.getTime()) return false
    if (!next) return true
    after = next
  }
  return true
}

/** The due times that had come before an edit, by the fields as they were: those that would have been recorded one by one. */
function droppedRuns(
  doc: Stored,
  before: object,
  until: Date,
  anchor: Date,
  { reason, now }: { readonly reason: string; readonly now: Date },
): NewRun[] {
  const pending = dateOf(doc.nextRunAt)
  const read = readSchedule(before as Record<string, unknown>)
  if (!pending || pending > until || 'problems' in read || !read.schedule.isActive) return []
  const { times } = dueTimes(read.schedule, pending, until, anchor)
  return times
    .slice(-MOST_COALESCED)
    .map((time) => skipped(runOf(doc._id, read.schedule, time, undefined), reason, now))
}

const skipped = (run: NewRun, reason: string, completedAt: Date): NewRun => {
  return { ...run, phase: 'Skipped', outcome: 'Skipped', reason, completedAt }
}

/** @param due the first due time that hasn't been handled */
function planned(
  doc: Stored,
  schedule: CheckedSchedule,
  set: Partial<ScheduleDocument>,
  due: Date,
  now: Date,
  anchor: Date,
  repeats: ScheduleDocument['repeats'],
): Decision {
  const run = (time: Date, coalesced: RunDocument['coalesced'] | undefined) =>
    runOf(doc._id, schedule, time, coalesced, again(doc._id, schedule, time, repeats))
  const startOf = (time: Date) => new Date(time.getTime() + jitterOf(schedule, doc._id, time))
  if (startOf(due) > now) {
    return { phase: 'Active', runs: [], set: { ...set, nextRunAt: due }, wakeAt: startOf(due) }
  }
  const { times, earlierSince } = dueTimes(schedule, due, now, anchor)
  const waiting = times.findIndex((time) => startOf(time) > now)
  const come = waiting === -1 ? times : times.slice(0, waiting)
  const next = waiting === -1 ? nextDue(schedule, come.at(-1)!, anchor) : times[waiting]
  // The ones before those that are listed one by one.
  const first = earlierSince && { count: 0, since: earlierSince, isMore: true }
  const runs = schedule.coalesce
    ? coalesced(run, come, earlierSince, now)
    : come.map((time, i) => run(time, i === 0 ? first : undefined))
  return {
    phase: next ? 'Active' : 'Finished',
    runs,
    set: { ...set, lastRunAt: come.at(-1)!, nextRunAt: next ?? null },
    wakeAt: next ? startOf(next) : null,
  }
}

/** True if it was planned at a time that is still in the future: the server's clock has stepped back since. */
function isPlannedAhead({ progress }: Stored, now: Date): boolean {
  const last: unknown = Array.isArray(progress?.history) ? progress.history.at(-1)?.at : undefined
  return last instanceof Date && last.getTime() > now.getTime() + STEP_SLACK_MS
}

/** The range of times that repeats after the server's clock has stepped back. */
function repeatsOf(doc: Stored, now: Date, isAhead: boolean): ScheduleDocument['repeats'] | undefined {
  const known = Object(doc.repeats)
  const until = Math.max(...[doc.lastRunAt, doc.createdAt, known.until].map((time) => dateOf(time)?.getTime() ?? 0))
  if (isAhead && until > now.getTime()) return { until: new Date(until), mark: now.getTime().toString(36) }
  return dateOf(known.until) && known.until >= now && typeof known.mark === 'string' ? doc.repeats! : undefined
}

/** Moves an anchor in the future back by whole intervals, to before now. */
function earlier(anchor: Date, { timing, startAt }: CheckedSchedule, now: Date): Date {
  if (timing.kind !== 'interval' || startAt || anchor <= now) return anchor
  const { everyMs } = timing
  return new Date(anchor.getTime() - Math.ceil((anchor.getTime() - now.getTime()) / everyMs + 1) * everyMs)
}

/**
 * Gives a run its own `_id` where its time repeats. A schedule that follows real time runs once more at a repeated time. A schedule for an
 * hour of the day has already run at that hour.
 */
function again(
  id: string,
  { timing }: CheckedSchedule,
  time: Date,
  repeats: ScheduleDocument['repeats'],
): { _id?: string } {
  const keepsRhythm = timing.kind === 'interval' || (timing.kind === 'cron' && timing.cron.keepsRhythm)
  return repeats && keepsRhythm && time <= repeats.until ? { _id: `${runIdOf(id, time)}+${repeats.mark}` } : {}
}

/** The anchor of an interval without `startAt`: `createdAt`, unless a client wrote one from which nothing would ever be due. */
export function anchorOf({ createdAt }: Stored, now: Date): Date {
  const made = dateOf(createdAt)
  return made && made.getTime() < YEAR_10000 ? made : now
}

/** The first due time from now on; for a one-off also one in the past, if it never ran. */
function firstDue(doc: Stored, schedule: CheckedSchedule, now: Date, anchor: Date): Date | undefined {
  const { timing } = schedule
  if (timing.kind !== 'once') return nextDue(schedule, now, anchor)
  const last = dateOf(doc.lastRunAt)
  return last && last >= timing.at ? undefined : timing.at
}

function coalesced(
  runAt: (time: Date, coalesced: RunDocument['coalesced'] | undefined) => NewRun,
  times: readonly Date[],
  earlierSince: Date | undefined,
  now: Date,
): NewRun[] {
  const latest = times.at(-1)!
  const others = times.slice(0, -1)
  const first = earlierSince ?? others[0]
  const run = runAt(latest, first && { count: others.length, since: first, isMore: earlierSince !== undefined })
  const reason = `coalesced: the run of ${latest.toISOString()} replaces it`
  const replaced = others.slice(-MOST_COALESCED).map((time) => skipped(runAt(time, undefined), reason, now))
  return [...replaced, run]
}

/** A run of a schedule as it is first stored. */
export function runOf(
  id: string,
  schedule: CheckedSchedule,
  due: Date,
  coalesced: RunDocument['coalesced'],
  more: Partial<RunDocument> = {},
): NewRun {
  const { graceMs, attempts, retryMs, longestRetryMs } = schedule
  const jitterMs = jitterOf(schedule, id, due)
  const startBy = graceMs === null ? null : new Date(due.getTime() + jitterMs + graceMs)
  return {
    _id: runIdOf(id, due),
    schedule: id,
    task: schedule.task,
    args: schedule.args,
    phase: 'Queued',
    scheduledFor: due,
    trigger: 'schedule',
    ...present({ coalesced, jitterMs: jitterMs || undefined }),
    startBy,
    maxInstances: schedule.maxInstances,
    retry: { attempts, backOffMs: retryMs, longestMs: longestRetryMs },
    timeoutMs: schedule.timeoutMs,
    attempt: 1,
    ...more,
  }
}

/** The last seen fields; any other value there can't be used for planning. */
const knownOf = ({ known }: Stored): ScheduleDocument['known'] =>
  typeof known === 'object' && known !== null && !Array.isArray(known) ? known : undefined

/** The owner's fields that a stored document has. */
export function fieldsOf(doc: object): Record<string, unknown> {
  const all = doc as Record<string, unknown>
  return Object.fromEntries(SCHEDULE_FIELDS.filter((name) => all[name] !== undefined).map((name) => [name, all[name]]))
}

export function changedFields(before: object, after: object): string[] {
  const [from, to] = [before as Record<string, unknown>, after as Record<string, unknown>]
  return SCHEDULE_FIELDS.filter((name) => textOf(from[name]) !== textOf(to[name]))
}

export function changesBetween(before: object, after: object, names: readonly string[]): NonNullable<Edit['changes']> {
  const [from, to] = [before as Record<string, unknown>, after as Record<string, unknown>]
  return Object.fromEntries(names.map((name) => [name, present({ from: briefly(from[name]), to: briefly(to[name]) })]))
}

/** Shortens a large value, because 50 edits of large arguments would exceed the size limit of a document. */
function briefly(value: unknown): unknown {
  if (value === undefined) return undefined
  const text = textOf(value)
  return text.length <= MOST_OF_A_CHANGE ? value : `${text.slice(0, SHOWN_OF_A_CHANGE)}... (${text.length} characters)`
}

const withEdit = (edits: unknown, edit: Edit): readonly Edit[] =>
  [...(Array.isArray(edits) ? (edits as Edit[]) : []), edit].slice(-MOST_EDITS)

const textOf = (value: unknown): string => BSON.EJSON.stringify({ value })

/** The warnings of a schedule, only if they have changed: a schedule that is looked at a thousand times stores them once. */
function changedWarnings(doc: Stored): Pick<ScheduleDocument, 'warnings'> {
  const warnings = [...nearMisses(doc), ...pauseWarnings(doc.paused)]
  if (warnings.length === 0) return doc.warnings == null ? {} : { warnings: null }
  return textOf(doc.warnings) === textOf(warnings) ? {} : { warnings }
}

function idProblems(id: unknown): string[] {
  if (typeof id === 'string' && id !== '' && id.length <= 200) return []
  return [
    `_id: expected a string of at most 200 characters, got ${typeof id === 'string' ? `${id.length}` : typeof id}`,
  ]
}
