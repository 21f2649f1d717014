import { randomBytes } from 'node:crypto'
import type { Collection, Document } from 'mongodb'
import { numbered, renamedNow } from '../options/index.js'
import { anchorOf, fieldsOf, type NewRun, runOf } from './decide.js'
import { type CheckedSchedule, readSchedule } from './definition/read-schedule.js'
import type { Json } from './definition/schedule-fields.js'
import { type Backfill, present, type RunDocument, runIdOf, type ScheduleDocument } from './documents.js'
import { nextDue } from './due.js'
import { InvalidBackfill } from './errors.js'
import { pauseOf } from './pauses.js'
import type { StoredRun, StoredSchedule } from './schedule-reader.js'

/** The options of a backfill. */
export interface BackfillOptions {
  /** The first due time that it may run. */
  readonly from: Date
  /** The last due time that it may run; not in the future. Default: now. */
  readonly to?: Date | undefined
  /**
   * The due times that run again although a run for them exists. Default: only those whose run never began (Skipped or Missed), and due
   * times without a run.
   * `failed`: also those whose runs have Failed. `all`: also those whose runs were Completed.
   */
  readonly again?: 'failed' | 'all' | undefined
  /** The number of runs at the same time; at most the schedule's `maxInstances`. Default 1. */
  readonly concurrency?: number | undefined
  /**
   * The behavior of a run while another run of the schedule, or a document that one has started, is still open. It waits (`wait`), or skips
   * its due time (`skip`), which counts as Skipped. Default `wait`. Runs of the same backfill always wait for each other.
   */
  readonly overlap?: 'wait' | 'skip' | undefined
  /** Arguments that replace the schedule's own. */
  readonly args?: Json | undefined
  /** The maximum number of due times to run; a range with more is refused. 1 to 10,000; default 1,000. */
  readonly atMost?: number | undefined
  /** The person or program that asks for it. */
  readonly by?: string | undefined
  /** The reason, for people. */
  readonly reason?: string | undefined
}

/** The runs that a backfill would make. */
export interface BackfillPreview {
  /** The number of due times that would run. */
  readonly runs: number
  /** The first of them; absent if there are none. */
  readonly first?: Date
  /** The last of them. */
  readonly last?: Date
  /** The number of due times in that range, including those that don't run again. */
  readonly dueTimes: number
}

/** A backfill and its progress. */
export interface BackfillState extends Backfill {
  /** The schedule's id. */
  readonly schedule: string
  /** `Paused` if its schedule is; `Stopped` if runs of it are gone, until it is resumed. */
  readonly condition: 'Running' | 'Paused' | 'Stopped' | 'Done' | 'Aborted'
  /** Its runs by phase. */
  readonly counts: Readonly<Partial<Record<StoredRun['phase'], number>>>
  /** The number of runs that have ended. */
  readonly over: number
  /** The runs per hour since the backfill was started; undefined if none has ended. */
  readonly perHour: number | undefined
  /** The estimated time that the rest takes at that rate; undefined if the backfill has ended or no estimate is possible. */
  readonly leftMs: number | undefined
}

type Runs = Collection<StoredRun>

const DEFAULT_AT_MOST = 1_000
const MOST_RUNS = 10_000
/** The maximum number of due times in a range; more are refused. Each costs 40 us at least once. */
const MOST_DUE_TIMES = 100_000
/** The number of due times whose runs are looked up with one query. */
const LOOK_UP = 300
const OPEN: readonly string[] = ['Queued', 'Running']

/**
 * Checks the options of a new backfill, and counts the runs that it would make.
 * @throws InvalidBackfill
 */
export async function checkedBackfill(
  runs: Runs,
  found: StoredSchedule & { readonly now: Date },
  options: BackfillOptions,
): Promise<{ readonly backfill: Backfill; readonly preview: BackfillPreview }> {
  const { _id: id, now } = found
  const { from, to = now, again, concurrency = 1, overlap, args, atMost = DEFAULT_AT_MOST, by, reason } = options
  const fields = { ...fieldsOf(found), ...present({ args }) }
  const read = readSchedule(fields)
  const problems = 'problems' in read ? [...read.problems] : []
  if ('why' in options) problems.push(renamedNow('why', 'reason'))
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
    ...{ runs: 0, at: now, ...present({ again, overlap, by, why: reason }) },
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

/** The due times of a backfill after a given one, each with the id of the run that it would get; undefined if it was handled already. */
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

/**
 * The id of the run for a due time; undefined if the due time was handled already. A due time without any run gets the id that its schedule
 * would use, so that both together make one run.
 */
function runIdFor(schedule: string, due: Date, { id, again }: Backfill, there: readonly StoredRun[] = []) {
  if (there.length === 0) return runIdOf(schedule, due)
  const is = (phase: string) => there.some((run) => run.phase === phase)
  const isDealtWith =
    there.some((run) => run.backfill?.id === id || OPEN.includes(run.phase)) ||
    (is('Completed') && again !== 'all') ||
    (is('Failed') && again === undefined)
  return isDealtWith ? undefined : `${runIdOf(schedule, due)}+${id}`
}

/** The next runs of a backfill after a due time; from the beginning of the backfill if there is no `after`. */
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

/** The part of a backfill that is stored in each of its runs. */
const marked = ({ id, overlap }: Backfill) => present({ id, overlap })

/** The backfill of a stored schedule; undefined if there is no backfill, or a user has overwritten it with something else. */
export function backfillOf(schedule: Pick<ScheduleDocument, 'backfill'> | null): Backfill | undefined {
  const found = (schedule?.backfill ?? undefined) as Partial<Backfill> | undefined
  if (typeof found !== 'object' || typeof found.id !== 'string' || typeof found.fields !== 'object') return undefined
  if (!isDate(found.from) || !isDate(found.to) || !isDate(found.anchor) || !isDate(found.at)) return undefined
  return isFrom1To(found.concurrency ?? 0, 100) ? (found as Backfill) : undefined
}

/** The state of a schedule's backfill. Its runs are found by the index of their history. */
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

/** The collections and the insert that a backfill needs when one of its runs has ended. */
export interface BackfillPlace {
  readonly schedules: () => Collection<ScheduleDocument>
  readonly runs: () => Runs
  /** @returns 0 if a run with this id exists already */
  readonly insertRun: (run: NewRun) => Promise<number>
}

/**
 * Begins the next run of a backfill after one that has ended.
 *
 * Invariants: each due time begins once. As long as due times are left, exactly the chains that were started continue, each in the order of
 * the due times.
 *
 * It is called before the run's phase says that the run is over, so a crash, a stop or a lost answer repeats it. A replica whose lease has
 * expired may call it at the same time. The run that it has begun shows that it was done already. That is checked only after the next due
 * time was found: a run that was started in the meantime either has taken that due time, or is seen.
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
    after = next.scheduledFor // that run was started in the meantime, or another document has its `_id`
  }
}

/** The backfill of a run; undefined if it was aborted, was replaced, or is gone with its schedule. */
export async function openBackfill(
  schedules: Collection<ScheduleDocument>,
  run: Readonly<RunDocument>,
): Promise<Backfill | undefined> {
  const backfill = backfillOf(await schedules.findOne({ _id: run.schedule }, { projection: { backfill: 1 } }))
  return backfill?.id === run.backfill?.id && !backfill?.abortedAt ? backfill : undefined
}

/** True if a run that the schedule itself has planned is waiting to begin: a backfill lets it go first. */
export async function isOtherWaiting(runs: Runs, { schedule }: Readonly<RunDocument>, now: Date): Promise<boolean> {
  const recent = { $gte: new Date(now.getTime() - 600_000), $lte: now }
  const waiting = { phase: 'Queued', trigger: { $ne: 'backfill' }, startedAt: { $exists: false } }
  const filter = { schedule, scheduledFor: recent, ...waiting } as Document
  return (await runs.findOne(filter, { projection: { _id: 1 } })) !== null
}
