import type { Collection, Document } from 'mongodb'
import { checkOptions, InvalidOptions, t } from '../options/index.js'
import { zoneOf } from './cron/zone.js'
import { type LastEnd, RUN_OUTCOMES, type RunOutcome } from './documents.js'

/** The options of `statistics`. */
export interface StatisticsOptions {
  /** Only runs that were due since then. Default: all that are kept. */
  readonly since?: Date | undefined
  /** At most this many runs, the latest ones: 1 to 100,000, which is the default. `isPart` says whether there are more. */
  readonly limit?: number | undefined
  /** The zone of `failuresByHour` and the trend's days. Default UTC. */
  readonly timezone?: string | undefined
}

/** The selection of runs: those of one task, of the schedules whose ids share a prefix, or all. */
export type StatisticsOf =
  | {
      /** The name of the task, as stored in the runs. */
      readonly task: string
    }
  | {
      /** The prefix of the schedules' ids: `repo_sync_`. */
      readonly prefix: string
    }
  | {
      /** All runs that are kept. */
      readonly all: true
    }

/** Statistics of the runs of one or several schedules. */
export interface RunStatistics {
  /** When a run was last Completed; null if none was. */
  readonly lastSuccessAt: Date | null
  /** That run; null if there is none yet. */
  readonly lastSuccess: LastEnd | null
  /** The run that Failed last; null if none has failed. */
  readonly lastFailure: LastEnd | null
  /** The number of runs, including those that aren't finished. */
  readonly runs: number
  /** True if there are more runs than `limit`: all figures are then of the latest ones. */
  readonly isPart: boolean
  /** The number of runs by outcome. */
  readonly byOutcome: Readonly<Record<RunOutcome, number>>
  /** The number of runs that aren't finished. */
  readonly open: number
  /** The runs in progress at this moment, whenever they were due: the 20 that began last, the latest first. */
  readonly running: readonly RunInProgress[]
  /** The share of Completed runs among those that ran to an end; null if none did. */
  readonly successRate: number | null
  /** The mean duration of completed runs, in ms; null without completed runs. */
  readonly meanMs: number | null
  /** The 95th percentile of the duration of completed runs, in ms; null without completed runs. */
  readonly p95Ms: number | null
  /** The number of tries that were lost with their replica. */
  readonly lost: number
  /** The 20 most frequent errors, the most frequent first. */
  readonly failuresByError: readonly {
    /** The error's name, such as 'TypeError'; else the run's reason. */
    readonly error: string
    /** The number of failed runs with this error. */
    readonly count: number
    /** When the latest of them was due. */
    readonly last: Date
  }[]
  /** The 20 schedules with the most failures, the most first. */
  readonly failuresBySchedule: readonly {
    /** The schedule's id. */
    readonly schedule: string
    /** The number of its runs that have failed. */
    readonly count: number
    /** When the latest of them was due. */
    readonly last: Date
  }[]
  /** 24 numbers: failures of runs that were due in each hour of the day. */
  readonly failuresByHour: readonly number[]
  /** Completed runs by the day on which they were due: the latest 30 days that have any, the oldest first. */
  readonly trend: readonly {
    /** `2026-11-21`, in the zone of the options. */
    readonly day: string
    /** The number of completed runs. */
    readonly runs: number
    /** The sum of their counters, by counter. */
    readonly counters: Readonly<Record<string, number>>
  }[]
}

/** A run in progress, as `statistics` shows it. */
export interface RunInProgress {
  /** Its `_id`. */
  readonly run: string
  /** The schedule's id. */
  readonly schedule: string
  /** When its first try began, by the server's clock. */
  readonly startedAt?: Date
  /** The name of the replica that runs it. */
  readonly by?: string
  /** The try, from 1. */
  readonly attempt?: number
}

/** The maximum number of runs that are counted, the latest ones: a schedule that runs every second is answered within bounds. */
export const MOST_RUNS = 100_000
const MOST_ROWS = 20
const MOST_DAYS = 30

/**
 * A filter for a due time that the server can take apart: BSON dates go beyond the years that it can print, and a query by type also
 * matches arrays.
 */
const HAS_DUE_TIME: Document = {
  $expr: {
    $and: [
      { $eq: [{ $type: '$scheduledFor' }, 'date'] },
      { $gte: ['$scheduledFor', new Date(0)] },
      { $lt: ['$scheduledFor', new Date('9999-12-31T00:00:00Z')] },
    ],
  },
}

/**
 * Computes the statistics with one aggregate: over a range of the history index for a schedule or a prefix, else over all runs.
 * @throws InvalidOptions, UnknownTimeZone, TypeError
 */
export async function statisticsOf(
  runs: unknown,
  which: string | StatisticsOf,
  { since, timezone = 'UTC', limit = MOST_RUNS }: StatisticsOptions,
): Promise<RunStatistics> {
  zoneOf(timezone)
  if (since !== undefined && !(since instanceof Date && !Number.isNaN(since.getTime())))
    throw new TypeError(`since: expected a date, got ${String(since)}`)
  const collection = runs as Collection<Document>
  const filter = { ...filterOf(which), ...(since ? { scheduledFor: { $gte: since } } : {}) }
  const [[found], running] = await Promise.all([
    collection
      .aggregate<Document>(pipeline(which, filter, limit, timezone), { ...WITHIN, allowDiskUse: true })
      .toArray(),
    inProgress(collection, which),
  ])
  const byOutcome = Object.fromEntries(RUN_OUTCOMES.map((outcome) => [outcome, 0])) as Record<RunOutcome, number>
  let total = 0
  let lost = 0
  for (const row of found?.['phases'] ?? []) {
    total += row.count
    lost += row.lost
    if (row._id in byOutcome) byOutcome[row._id as RunOutcome] = row.count
  }
  const ended = byOutcome.Completed + byOutcome.Failed
  const duration = found?.['durations']?.[0]
  const failuresByHour = Array.from({ length: 24 }, () => 0)
  for (const row of found?.['hours'] ?? []) failuresByHour[row._id] = row.count
  const lastSuccess: LastEnd | null = found?.['lastSuccess']?.[0] ?? null
  return {
    lastSuccessAt: lastSuccess?.at ?? null,
    lastSuccess,
    lastFailure: found?.['lastFailure']?.[0] ?? null,
    runs: total,
    // Counted only where there may be more.
    isPart: total >= limit && (await collection.countDocuments(filter, { ...WITHIN, skip: limit, limit: 1 })) > 0,
    byOutcome,
    open: total - RUN_OUTCOMES.reduce((sum, outcome) => sum + byOutcome[outcome], 0),
    running,
    successRate: ended === 0 ? null : byOutcome.Completed / ended,
    meanMs: duration ? Math.round(duration.mean) : null,
    p95Ms: duration?.p95 ?? null,
    lost,
    failuresByError: found?.['errors'] ?? [],
    failuresBySchedule: found?.['schedules'] ?? [],
    failuresByHour,
    trend: trendOf(found?.['trend'] ?? []),
  }
}

/** The database gives up a reading that takes longer. */
const WITHIN = { maxTimeMS: 30_000 }

const inProgress = (runs: Collection<Document>, which: string | StatisticsOf): Promise<RunInProgress[]> =>
  runs
    .find({ ...filterOf(which), phase: 'Running' }, WITHIN)
    .sort({ startedAt: -1, _id: 1 })
    .limit(MOST_ROWS)
    .project<RunInProgress>({ _id: 0, run: '$_id', schedule: 1, startedAt: 1, by: 1, attempt: 1 })
    .toArray()

const whichOptions = t.object({
  task: t.optional(t.name),
  prefix: t.optional(t.name),
  all: t.optional(t.where<true>((value) => value === true, t.expecting('true'))),
})

/** @throws InvalidOptions */
function filterOf(which: string | StatisticsOf): Document {
  if (typeof which === 'string') return { schedule: which }
  const { task, prefix, all } = checkOptions('schedules.statistics', whichOptions, which)
  if ([task, prefix, all].filter((value) => value !== undefined).length !== 1)
    throw new InvalidOptions('schedules.statistics', ['expected the id of a schedule, or one of task, prefix and all'])
  if (task !== undefined) return { task }
  return prefix === undefined ? {} : { schedule: { $gte: prefix, $lt: `${prefix}${LAST}` } }
}

/** The last possible character: every string with a prefix sorts before the prefix followed by it. */
const LAST = '\u{10ffff}'

/** The fields that are sorted along; a log of 200 lines and the arguments are not. */
const NEEDED = Object.fromEntries(
  ['phase', 'schedule', 'scheduledFor', 'completedAt', 'durationMs', 'lost', 'error', 'reason', 'counters'].map(
    (name) => [name, 1],
  ),
)

const lastEnd = (phase: 'Completed' | 'Failed'): Document[] => [
  // A query by type also matches arrays.
  { $match: { phase, $expr: { $eq: [{ $type: '$completedAt' }, 'date'] } } },
  { $sort: { completedAt: -1 } },
  { $limit: 1 },
  {
    $project: {
      ...{ _id: 0, run: '$_id', at: '$completedAt', scheduledFor: 1, durationMs: 1 },
      ...{ 'error.name': 1, 'error.message': 1 },
    },
  },
]

/** The most frequent values of an expression among failed runs. */
const failuresBy = (as: string, value: unknown): Document[] => [
  { $match: { phase: 'Failed' } },
  { $group: { _id: value, count: { $sum: 1 }, last: { $max: '$scheduledFor' } } },
  { $sort: { count: -1, _id: 1 } },
  { $limit: MOST_ROWS },
  { $project: { _id: 0, [as]: '$_id', count: 1, last: 1 } },
]

function pipeline(which: string | StatisticsOf, filter: Document, limit: number, timezone: string): Document[] {
  const day = { $dateToString: { date: '$scheduledFor', format: '%Y-%m-%d', timezone } }
  const counters = { $cond: [{ $eq: [{ $type: '$counters' }, 'object'] }, '$counters', {}] }
  const rank95 = { $multiply: [{ $size: '$all' }, 0.95] }
  return [
    { $match: filter },
    // The runs of one schedule come in this order, by the index.
    ...(typeof which === 'string' ? [] : [{ $project: NEEDED }]),
    { $sort: { scheduledFor: -1 } },
    { $limit: limit },
    {
      $facet: {
        lastSuccess: lastEnd('Completed'),
        lastFailure: lastEnd('Failed'),
        phases: [{ $group: { _id: '$phase', count: { $sum: 1 }, lost: { $sum: { $ifNull: ['$lost', 0] } } } }],
        durations: [
          { $match: { phase: 'Completed', durationMs: { $type: 'number' } } },
          { $sort: { durationMs: 1 } },
          { $group: { _id: null, mean: { $avg: '$durationMs' }, all: { $push: '$durationMs' } } },
          {
            $project: {
              mean: 1,
              p95: { $arrayElemAt: ['$all', { $subtract: [{ $toInt: { $ceil: rank95 } }, 1] }] },
            },
          },
        ],
        errors: failuresBy('error', { $ifNull: ['$error.name', { $ifNull: ['$reason', '(not reported)'] }] }),
        schedules: failuresBy('schedule', '$schedule'),
        hours: [
          { $match: { phase: 'Failed', ...HAS_DUE_TIME } },
          { $group: { _id: { $hour: { date: '$scheduledFor', timezone } }, count: { $sum: 1 } } },
        ],
        trend: [
          { $match: { phase: 'Completed', ...HAS_DUE_TIME } },
          {
            $project: { day, counter: { $concatArrays: [[{ k: '', v: 1 }], { $objectToArray: counters }] } },
          },
          { $unwind: '$counter' },
          { $match: { $expr: { $isNumber: '$counter.v' } } },
          { $group: { _id: { day: '$day', counter: '$counter.k' }, sum: { $sum: '$counter.v' } } },
          { $sort: { '_id.day': -1, '_id.counter': 1 } },
          { $limit: MOST_DAYS * 100 },
        ],
      },
    },
  ]
}

/** The trend by day. The counter without a name counts the runs. */
function trendOf(rows: readonly Document[]): RunStatistics['trend'] {
  const days = new Map<string, { runs: number; counters: Record<string, number> }>()
  for (const { _id, sum } of rows) {
    const day = days.get(_id.day) ?? { runs: 0, counters: {} }
    if (_id.counter === '') day.runs = sum
    else day.counters[_id.counter] = sum
    days.set(_id.day, day)
  }
  return [...days]
    .slice(0, MOST_DAYS)
    .map(([day, { runs, counters }]) => ({ day, runs, counters }))
    .reverse()
}
