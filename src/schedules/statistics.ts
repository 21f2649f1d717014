import type { Collection, Document } from 'mongodb'
import { checkOptions, InvalidOptions, t } from '../options/index.js'
import { zoneOf } from './cron/zone.js'
import { type LastEnd, RUN_OUTCOMES, type RunOutcome } from './documents.js'

/** The options of `statistics`. */
export interface StatisticsOptions {
  /** Only runs that were due since then. Default: all that are kept; of more than 100,000 the latest. */
  readonly since?: Date | undefined
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
  /** The number of runs by outcome. */
  readonly byOutcome: Readonly<Record<RunOutcome, number>>
  /** The number of runs that aren't finished. */
  readonly open: number
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

/** The maximum number of runs that are read, the latest ones: a schedule that runs every second is answered within bounds. */
const MOST_RUNS = 100_000
const MOST_ERRORS = 20
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
  { since, timezone = 'UTC' }: StatisticsOptions,
): Promise<RunStatistics> {
  zoneOf(timezone)
  if (since !== undefined && !(since instanceof Date && !Number.isNaN(since.getTime())))
    throw new TypeError(`since: expected a date, got ${String(since)}`)
  const [found] = await (runs as Collection<Document>)
    .aggregate<Document>(pipeline(which, since, timezone), { maxTimeMS: 30_000, allowDiskUse: true })
    .toArray()
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
    byOutcome,
    open: total - RUN_OUTCOMES.reduce((sum, outcome) => sum + byOutcome[outcome], 0),
    successRate: ended === 0 ? null : byOutcome.Completed / ended,
    meanMs: duration ? Math.round(duration.mean) : null,
    p95Ms: duration?.p95 ?? null,
    lost,
    failuresByError: found?.['errors'] ?? [],
    failuresByHour,
    trend: trendOf(found?.['trend'] ?? []),
  }
}

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
  ['phase', 'scheduledFor', 'completedAt', 'durationMs', 'lost', 'error', 'reason', 'counters'].map((name) => [
    name,
    1,
  ]),
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

function pipeline(which: string | StatisticsOf, since: Date | undefined, timezone: string): Document[] {
  const day = { $dateToString: { date: '$scheduledFor', format: '%Y-%m-%d', timezone } }
  const counters = { $cond: [{ $eq: [{ $type: '$counters' }, 'object'] }, '$counters', {}] }
  const rank95 = { $multiply: [{ $size: '$all' }, 0.95] }
  return [
    { $match: { ...filterOf(which), ...(since ? { scheduledFor: { $gte: since } } : {}) } },
    // The runs of one schedule come in this order, by the index.
    ...(typeof which === 'string' ? [] : [{ $project: NEEDED }]),
    { $sort: { scheduledFor: -1 } },
    { $limit: MOST_RUNS },
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
        errors: [
          { $match: { phase: 'Failed' } },
          {
            $group: {
              _id: { $ifNull: ['$error.name', { $ifNull: ['$reason', '(not reported)'] }] },
              count: { $sum: 1 },
              last: { $max: '$scheduledFor' },
            },
          },
          { $sort: { count: -1, _id: 1 } },
          { $limit: MOST_ERRORS },
          { $project: { _id: 0, error: '$_id', count: 1, last: 1 } },
        ],
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
