import type { Collection, Db } from 'mongodb'
import { protocolCollection } from '../database/index.js'
import { asReadable, canBeId } from '../lock/index.js'
import { checkOptions, InvalidOptions, shown, t } from '../options/index.js'
import { fieldsOf } from './decide.js'
import type { ScheduleFields } from './definition/schedule-fields.js'
import { type Pause, present, type RunDocument, type RunOutcome, type ScheduleDocument } from './documents.js'
import { HISTORY_INDEX_SORT, lookupRuns } from './indexes.js'
import { PAUSED, PAUSES_IN_FORCE } from './pauses.js'
import { MOST_RUNS, type RunStatistics, type StatisticsOf, type StatisticsOptions, statisticsOf } from './statistics.js'

/** A schedule as it is stored, with the engine's own fields. */
export type StoredSchedule = ScheduleDocument & {
  /** Active, Paused, Finished or Broken; absent if no replica has looked at it yet. */
  phase?: string
  /** The next time that a replica looks at it, less the lockTimeout; 1970-01-01 or absent: as soon as possible. */
  lockedAt?: Date | null
  /** The token of the replica that plans it at this moment. */
  lockedBy?: string | null
  /** When it was stored, or first claimed if a client stored it without; the time from which an `interval` without `startAt` counts. */
  createdAt?: Date
}

/** A run as it is stored, with its phase. */
export type StoredRun = RunDocument & {
  /** The phase; Queued also between two tries, and at the end the outcome. */
  phase: 'Queued' | 'Running' | RunOutcome
  /** When a replica first claimed it; absent before, and for a run that was over when it was stored. */
  createdAt?: Date
}

/** The options of `list`. */
export interface ScheduleListOptions {
  /** At most this many. Default 100. */
  readonly limit?: number | undefined
  /** Only those after this id. */
  readonly after?: string | undefined
  /** Only those in this phase: Active, Paused, Finished, Broken. */
  readonly phase?: string | undefined
}

/** What `pauses` takes. */
export interface PausesOptions {
  /** Only those of this one. */
  readonly schedule?: string | undefined
  /** At most this many. Default 100. */
  readonly limit?: number | undefined
}

/** A pause in force, and of which schedule; `at` is absent from one that was written by hand. */
export type ListedPause = Pause & { readonly schedule: string }

/** The options of `runs`. */
export interface RunsOptions {
  /** At most this many, the latest first. Default 20. */
  readonly limit?: number | undefined
  /** Only those in this phase. */
  readonly phase?: StoredRun['phase'] | undefined
}

const aPhase = t.optional(t.name)
const listOptions = t.object({
  limit: t.withDefault(t.whole(1, 1_000_000), 100),
  after: t.optional(t.text),
  phase: aPhase,
})
const pausesOptions = t.object({ limit: t.withDefault(t.whole(1, 1_000_000), 100) })
const runsOptions = t.object({ limit: t.withDefault(t.whole(1, 1_000_000), 20), phase: aPhase })
const statisticsOptions = t.object({
  since: t.optional(t.aDate),
  limit: t.optional(t.whole(1, MOST_RUNS)),
  timezone: t.optional(t.name),
})

/** A schedule as `list` returns it. */
export interface ListedSchedule extends StoredSchedule {
  /** Those in force. */
  readonly pauses?: readonly Pause[]
  /** The run with the latest due time, with only the message of its `error`; absent if it has no run. */
  readonly lastRun?: Pick<
    StoredRun,
    '_id' | 'phase' | 'scheduledFor' | 'completedAt' | 'durationMs' | 'reason' | 'error'
  >
}

/**
 * Rejects anything but an id: in a filter an operator, or `undefined`, would match other schedules. Ids of other types than strings belong
 * to broken schedules.
 * @throws InvalidOptions
 */
export function requireId(id: unknown): void {
  if (!canBeId(id))
    throw new InvalidOptions('schedules', [`expected the id of a schedule or of a run, a string, got ${shown(id)}`])
}

/** The methods that read schedules and their runs. */
export abstract class ScheduleReader {
  constructor(private readonly names: { readonly schedules: string; readonly runs: string }) {}

  /** @throws NotAttached before a database is known */
  protected abstract get db(): Db

  protected get schedules(): Collection<StoredSchedule> {
    return protocolCollection<StoredSchedule>(this.db, this.names.schedules)
  }

  protected get runDocuments(): Collection<StoredRun> {
    return protocolCollection<StoredRun>(this.db, this.names.runs)
  }

  /** The schedule with this id; null if there is no such schedule. */
  async get(id: string): Promise<StoredSchedule | null> {
    requireId(id)
    return asReadable((how) => this.schedules.findOne({ _id: id }, how)) as Promise<StoredSchedule | null>
  }

  /** The fields of a schedule that are its owner's, as they are stored; undefined: there is none with this id. */
  async fields(id: string): Promise<Partial<ScheduleFields> | undefined> {
    const found = await this.get(id)
    return found ? fieldsOf(found) : undefined
  }

  /** Schedules by id, each with its latest run. */
  async list(options: ScheduleListOptions = {}): Promise<ListedSchedule[]> {
    const { limit, after, phase } = checkOptions('schedules.list', listOptions, options)
    const pipeline = [
      { $match: present({ _id: after === undefined ? undefined : { $gt: after }, phase }) },
      { $sort: { _id: 1 } },
      { $limit: limit },
      { $set: { pauses: { $cond: [{ $eq: [{ $size: PAUSES_IN_FORCE }, 0] }, '$$REMOVE', PAUSES_IN_FORCE] } } },
      lookupRuns(this.names.runs, 'lastRun', [
        { $limit: 1 },
        { $project: { phase: 1, scheduledFor: 1, completedAt: 1, durationMs: 1, reason: 1, 'error.message': 1 } },
      ]),
      { $set: { lastRun: { $first: '$lastRun' } } },
    ]
    return asReadable((how) => this.schedules.aggregate<ListedSchedule>(pipeline, how).toArray())
  }

  /** Pauses in force, by schedule. */
  async pauses(options: PausesOptions = {}): Promise<ListedPause[]> {
    const { schedule, ...rest } = options
    const { limit } = checkOptions('schedules.pauses', pausesOptions, rest)
    if (schedule !== undefined) requireId(schedule)
    const pipeline = [
      { $match: schedule === undefined ? PAUSED : { _id: schedule } },
      { $sort: { _id: 1 } },
      { $project: { pauses: PAUSES_IN_FORCE } },
      { $unwind: '$pauses' },
      { $limit: limit },
      { $replaceWith: { $mergeObjects: ['$pauses', { schedule: '$_id' }] } },
    ]
    return this.schedules.aggregate<ListedPause>(pipeline).toArray()
  }

  /** The run with this id, `<schedule>@<due time>`; null if there is no such run, or it is no longer kept. */
  async findRun(runId: string): Promise<StoredRun | null> {
    requireId(runId)
    return asReadable((how) => this.runDocuments.findOne({ _id: runId }, how)) as Promise<StoredRun | null>
  }

  /** A schedule's runs, the latest first. */
  async runs(schedule: string, options: RunsOptions = {}): Promise<StoredRun[]> {
    requireId(schedule)
    const { limit, phase } = checkOptions('schedules.runs', runsOptions, options)
    const filter = present({ schedule, phase: phase as RunsOptions['phase'] })
    return asReadable((how) =>
      this.runDocuments.find(filter, { sort: HISTORY_INDEX_SORT, limit, ...how }).toArray(),
    ) as Promise<StoredRun[]>
  }

  /**
   * Statistics of the runs of a schedule, by its id; or of a task, of the schedules whose ids begin with a prefix, or of all. Computed by
   * the database: for a task and for all it reads each run that is kept, or that was due since `since`.
   * @throws InvalidOptions, UnknownTimeZone
   * @example await schedules.statistics({ prefix: 'repo_sync_' }, { since: new Date('2026-11-01') }) // { runs: 214, successRate: 0.99, ... }
   */
  async statistics(which: string | StatisticsOf, options: StatisticsOptions = {}): Promise<RunStatistics> {
    if (typeof which !== 'object') requireId(which)
    checkOptions('schedules.statistics', statisticsOptions, options)
    return statisticsOf(this.runDocuments, which, options)
  }
}
