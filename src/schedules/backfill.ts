import { randomBytes } from 'node:crypto'
import type { Collection, Document } from 'mongodb'
import { numbered } from '../options/index.js'
import { anchorOf, fieldsOf, type NewRun, pauseOf, runOf } from './decide.js'
import { type CheckedSchedule, readSchedule } from './definition/read-schedule.js'
import type { Json } from './definition/schedule-fields.js'
import { type Backfill, present, type RunDocument, runIdOf, type ScheduleDocument } from './documents.js'
import { nextDue } from './due.js'
import { InvalidBackfill } from './errors.js'
import type { StoredRun, StoredSchedule } from './schedule-reader.js'

/** What a backfill takes. */
export interface BackfillOptions {
  /** The first due time that it may run. */
  readonly from: Date
  /** The last one; not in the future. Default: now. */
  readonly to?: Date | undefined
  /**
   * Which due times that have been dealt with run again. Default: those without a run that has begun: there is none (any more), it
   * was Skipped or Missed. `failed`: those whose runs have Failed, too. `all`: those that were Completed, too.
   */
  readonly again?: 'failed' | 'all' | undefined
  /** Runs at the same time; at most the schedule's `maxInstances`. Default 1. */
  readonly concurrency?: number | undefined
  /**
   * What a run does while another one of the schedule, or what that has started, goes on: `wait`, or `skip` its due time, which counts as Skipped.
   * Default `wait`. Runs of the same backfill wait for each other in any case.
   */
  readonly overlap?: 'wait' | 'skip' | undefined
  /** In place of the schedule's own. */
  readonly args?: Json | undefined
  /** More due times to run than this are refused. 1 to 10,000; default 1,000. */
  readonly atMost?: number | undefined
  /** Who wants it. */
  readonly by?: string | undefined
  /** Why, for people. */
  readonly why?: string | undefined
}

/** What a backfill would run. */
export interface BackfillPreview {
  /** How many due times. */
  readonly runs: number
  /** The first of them; absent: none. */
  readonly first?: Date
  /** The last of them. */
  readonly last?: Date
  /** How many due times there are in that range, those that don't run again included. */
  readonly dueTimes: number
}

/** A backfill, and how far it is. */
export interface BackfillState extends Backfill {
  /** The schedule's id. */
  readonly schedule: string
  /** `Paused`: its schedule is; `Stopped`: runs of it are gone, and it goes on when it is resumed. */
  readonly condition: 'Running' | 'Paused' | 'Stopped' | 'Done' | 'Aborted'
  /** Its runs by phase. */
  readonly counts: Readonly<Partial<Record<StoredRun['phase'], number>>>
  /** How many are over. */
  readonly over: number
  /** Runs in an hour, since it was begun; undefined: none is over. */
  readonly perHour: number | undefined
  /** How long the rest takes at that rate; undefined: it has ended, or nobody knows. */
  readonly leftMs: number | undefined
}

type Runs = Collection<StoredRun>

const DEFAULT_AT_MOST = 1_000
const MOST_RUNS = 10_000
/** A range with more due times is refused: each costs 40 us, once in all, or more. */
const MOST_DUE_TIMES = 100_000
/** Due times whose runs are looked up at once. */
const LOOK_UP = 300
const OPEN: readonly string[] = ['Queued', 'Running']

/**
 * A backfill that is to be begun, and what it would run.
 * @throws InvalidBackfill
 */
export async function checkedBackfill(
  runs: Runs,
  found: StoredSchedule & { readonly now: Date },
  { from, to = found.now, again, concurrency = 1, overlap, args, atMost = DEFAULT_AT_MOST, by, why }: BackfillOptions,
): Promise<{ readonly backfill: Backfill; readonly preview: BackfillPreview }> {
  const { _id: id, now } = found
  const fields = { ...fieldsOf(found), ...present({ args }) }
  const read = readSchedule(fields)
  const problems = 'problems' in read ? [...read.problems] : []
  const places = 'problems' in read ? 100 : read.schedule.maxInstances
  if (!isDate(from)) problems.push(`from: expected a date, got ${String(from)}`)
  if (!isDate(to)) problems.push(`to: expected a date, got ${String(to)}`)
  if (isDate(from) && isDate(to)) {
    if (from > to) problems.push(`from: expected a time before ${to.toISOString()}, got ${from.toISOString()}`)
    if (to > now)
      problems.push(`to: expected a time that has passed, got ${to.toISOString()}; it is ${now.toISOString()}`)
  }
  if (again !== undefined && again !== 'failed' && again !== 'all')
    problems.push(`again: expected 'failed' or 'all', got ${String(again)}`)
  if (overlap !== undefined && overlap !== 'wait' && overlap !== 'skip')
    problems.push(`overlap: expected 'wait' or 'skip', got ${String(overlap)}`)
  if (!isFrom1To(concurrency, places))
    problems.push(`concurrency: expected 1 to ${places}, the schedule's maxInstances, got ${concurrency}`)
  if (!isFrom1To(atMost, MOST_RUNS)) problems.push(`atMost: expected 1 to ${MOST_RUNS}, got ${atMost}`)
  if (problems.length > 0) throw new InvalidBackfill(id, problems, true)
  const backfill: Backfill = {
    ...{ id: `bf${randomBytes(4).toString('hex')}`, from, to, concurrency, fields, anchor: anchorOf(found, now) },
    ...{ runs: 0, at: now, ...present({ again, overlap, by, why }) },
  }
  const preview = { runs: 0, dueTimes: 0 } as { -readonly [K in keyof BackfillPreview]: BackfillPreview[K] }
  for await (const { due, runId } of dueOf(runs, id, backfill, undefined)) {
    preview.dueTimes += 1
    if (preview.dueTimes > MOST_DUE_TIMES)
      throw new InvalidBackfill(id, [`expected at most ${MOST_DUE_TIMES} due times in the range, there are more`])
    if (runId === undefined) continue
    preview.runs += 1
    preview.first ??= due
    preview.last = due
    if (preview.runs > atMost)
      throw new InvalidBackfill(id, [
        `expected at most ${numbered(atMost, 'due time')} to run, there are more; say how many there may be (atMost, or --at-most), or take a shorter range`,
      ])
  }
  return { backfill: { ...backfill, runs: preview.runs }, preview }
}

const isDate = (value: unknown): value is Date => value instanceof Date && !Number.isNaN(value.getTime())
const isFrom1To = (value: number, most: number) => Number.isSafeInteger(value) && value >= 1 && value <= most

/** The due times of a backfill after one of them, each with the id of the run that it would get; undefined: it is dealt with. */
async function* dueOf(
  runs: Runs,
  schedule: string,
  backfill: Backfill,
  after: Date | undefined,
): AsyncGenerator<{ readonly due: Date; readonly runId: string | undefined; readonly checked: CheckedSchedule }> {
  const read = readSchedule(backfill.fields)
  if ('problems' in read) return
  const { schedule: checked } = read
  let last = after ?? new Date(backfill.from.getTime() - 1)
  for (;;) {
    const dues: Date[] = []
    while (dues.length < LOOK_UP) {
      const next = nextDue(checked, last, backfill.anchor)
      if (!next || next > backfill.to) break
      dues.push(next)
      last = next
    }
    if (dues.length === 0) return
    const filter = { schedule, scheduledFor: { $in: dues } }
    const projection = { scheduledFor: 1, phase: 1, backfill: 1 }
    const there = new Map<number, StoredRun[]>()
    for (const run of await runs.find(filter, { projection }).toArray()) {
      const ms = run.scheduledFor.getTime()
      there.set(ms, [...(there.get(ms) ?? []), run as StoredRun])
    }
    for (const due of dues) yield { due, runId: runIdFor(schedule, due, backfill, there.get(due.getTime())), checked }
  }
}

/** A due time without any run gets the one that its schedule would give it, so that both together make one. */
function runIdFor(schedule: string, due: Date, { id, again }: Backfill, there: readonly StoredRun[] = []) {
  if (there.length === 0) return runIdOf(schedule, due)
  const is = (phase: string) => there.some((run) => run.phase === phase)
  const isDealtWith =
    there.some((run) => run.backfill?.id === id || OPEN.includes(run.phase)) ||
    (is('Completed') && again !== 'all') ||
    (is('Failed') && again === undefined)
  return isDealtWith ? undefined : `${runIdOf(schedule, due)}+${id}`
}

/** The next runs of a backfill after a due time; without one from its beginning. */
export async function nextRuns(
  runs: Runs,
  schedule: string,
  backfill: Backfill,
  most: number,
  after?: Date,
): Promise<NewRun[]> {
  const next: NewRun[] = []
  if (most <= 0) return next
  for await (const { due, runId, checked } of dueOf(runs, schedule, backfill, after)) {
    if (runId === undefined) continue
    const of = { _id: runId, trigger: 'backfill', startBy: null, backfill: marked(backfill) } as const
    next.push(runOf(schedule, checked, due, undefined, { ...of, ...present({ requestedBy: backfill.by }) }))
    if (next.length >= most) break
  }
  return next
}

/** What its runs know of it. */
const marked = ({ id, overlap }: Backfill) => present({ id, overlap })

/** The backfill of a stored schedule; undefined: it has none, or a person has changed it into something else. */
export function backfillOf(schedule: Pick<ScheduleDocument, 'backfill'> | null): Backfill | undefined {
  const found = (schedule?.backfill ?? undefined) as Partial<Backfill> | undefined
  if (typeof found !== 'object' || typeof found.id !== 'string' || typeof found.fields !== 'object') return undefined
  if (!isDate(found.from) || !isDate(found.to) || !isDate(found.anchor) || !isDate(found.at)) return undefined
  return isFrom1To(found.concurrency ?? 0, 100) ? (found as Backfill) : undefined
}

/** How far a schedule's backfill is; its runs are found by the index of their history. */
export async function backfillState(
  runs: Runs,
  schedule: StoredSchedule & { readonly now: Date },
): Promise<BackfillState | undefined> {
  const backfill = backfillOf(schedule)
  if (!backfill) return undefined
  const { from, to, id } = backfill
  const rows = await runs
    .aggregate<{ _id: StoredRun['phase']; n: number; last: Date | null }>([
      { $match: { schedule: schedule._id, scheduledFor: { $gte: from, $lte: to }, 'backfill.id': id } },
      { $group: { _id: '$phase', n: { $sum: 1 }, last: { $max: '$completedAt' } } },
    ])
    .toArray()
  const isOpen = rows.some(({ _id }) => OPEN.includes(_id))
  const ended = rows.filter(({ _id }) => !OPEN.includes(_id))
  const over = ended.reduce((sum, { n }) => sum + n, 0)
  const isPaused = pauseOf(schedule, schedule.now) !== undefined
  const condition = backfill.abortedAt
    ? 'Aborted'
    : isOpen
      ? isPaused
        ? 'Paused'
        : 'Running'
      : backfill.allBegun
        ? 'Done'
        : 'Stopped'
  const lastMs = Math.max(...ended.map(({ last }) => last?.getTime() ?? 0))
  const tookMs = (isOpen ? schedule.now.getTime() : lastMs) - backfill.at.getTime()
  const perHour = over > 0 && tookMs > 0 ? (over / tookMs) * 3_600_000 : undefined
  const left = Math.max(0, backfill.runs - over)
  return {
    ...backfill,
    ...{ schedule: schedule._id, condition, over, perHour },
    counts: Object.fromEntries(rows.map(({ _id, n }) => [_id, n])),
    leftMs: isOpen && perHour && !backfill.abortedAt ? (left / perHour) * 3_600_000 : undefined,
  }
}

/** What goes on with a backfill when one of its runs is over. */
export interface BackfillPlace {
  readonly schedules: () => Collection<ScheduleDocument>
  readonly runs: () => Runs
  /** @returns 0: there already is a run with this id */
  readonly insertRun: (run: NewRun) => Promise<number>
}

/**
 * Begins the next run of a backfill for one that is over. Invariants: each due time begins once; as many chains go on as were begun,
 * each in the order of the due times. It is called before the run's phase says that it is over, so a crash, a stop or a lost answer repeats
 * it, and one whose lease has run out may do it at the same time; that it was done already is seen by the run that it has begun. Only after
 * the next due time was found: what began meanwhile has taken that one, or is seen.
 */
export async function continueBackfill(
  { schedules, runs, insertRun }: BackfillPlace,
  run: Readonly<RunDocument>,
): Promise<void> {
  if (!run.backfill) return
  const { schedule, scheduledFor } = run
  const backfill = await openBackfill(schedules(), run)
  if (!backfill || backfill.allBegun) return
  const later = { $gt: scheduledFor, $lte: backfill.to }
  const follower = { schedule, scheduledFor: later, 'backfill.after': run._id } as Document
  for (let after = scheduledFor; ; ) {
    const [next] = await nextRuns(runs(), schedule, backfill, 1, after)
    if (await runs().findOne(follower, { projection: { _id: 1 } })) return
    if (!next) {
      await schedules().updateOne({ _id: schedule, 'backfill.id': backfill.id } as Document, {
        $set: { 'backfill.allBegun': true } as object,
      })
      return
    }
    if ((await insertRun({ ...next, backfill: { ...marked(backfill), after: run._id } })) > 0) return
    after = next.scheduledFor // that one has begun meanwhile, or something else has its `_id`
  }
}

/** The backfill that a run belongs to, unless that was aborted, or is gone with its schedule or replaced. */
export async function openBackfill(
  schedules: Collection<ScheduleDocument>,
  run: Readonly<RunDocument>,
): Promise<Backfill | undefined> {
  const backfill = backfillOf(await schedules.findOne({ _id: run.schedule }, { projection: { backfill: 1 } }))
  return backfill?.id === run.backfill?.id && !backfill?.abortedAt ? backfill : undefined
}

/** Whether a run of a schedule itself is waiting to begin: a backfill lets it go first. */
export async function isOtherWaiting(runs: Runs, { schedule }: Readonly<RunDocument>, now: Date): Promise<boolean> {
  const recent = { $gte: new Date(now.getTime() - 600_000), $lte: now }
  const waiting = { phase: 'Queued', trigger: { $ne: 'backfill' }, startedAt: { $exists: false } }
  const filter = { schedule, scheduledFor: recent, ...waiting } as Document
  return (await runs.findOne(filter, { projection: { _id: 1 } })) !== null
}
