import type { Collection, Db } from 'mongodb'
import { protocolCollection } from '../database/index.js'
import { asReadable } from '../lock/index.js'
import { present, type RunDocument, type RunOutcome, type ScheduleDocument } from './documents.js'
import { HISTORY_INDEX_SORT, lookupRuns } from './indexes.js'
import { type RunStatistics, type StatisticsOptions, statisticsOf } from './statistics.js'

/** A schedule as it is stored, with the engine's own fields. */
export type StoredSchedule = ScheduleDocument & {
  phase?: string
  lockedAt?: Date | null
  lockedBy?: string | null
  createdAt?: Date
}

/** A run as it is stored, with its phase. */
export type StoredRun = RunDocument & { phase: 'Queued' | 'Running' | RunOutcome; createdAt?: Date }

export interface ListOptions {
  /** At most this many. Default 100. */
  readonly limit?: number | undefined
  /** Those after this id. */
  readonly after?: string | undefined
  /** Only those in this phase: Active, Paused, Finished, Broken. */
  readonly phase?: string | undefined
}

export interface RunsOptions {
  /** At most this many, the latest first. Default 20. */
  readonly limit?: number | undefined
  readonly phase?: StoredRun['phase'] | undefined
}

export interface ListedSchedule extends StoredSchedule {
  readonly lastRun?: Pick<
    StoredRun,
    '_id' | 'phase' | 'scheduledFor' | 'completedAt' | 'durationMs' | 'reason' | 'error'
  >
}

/** What can be read of schedules and their runs. */
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

  get(id: string): Promise<StoredSchedule | null> {
    return asReadable((how) => this.schedules.findOne({ _id: id }, how)) as Promise<StoredSchedule | null>
  }

  /** Schedules by id, each with its latest run. */
  list({ limit = 100, after, phase }: ListOptions = {}): Promise<ListedSchedule[]> {
    const pipeline = [
      { $match: present({ _id: after === undefined ? undefined : { $gt: after }, phase }) },
      { $sort: { _id: 1 } },
      { $limit: limit },
      lookupRuns(this.names.runs, 'lastRun', [
        { $limit: 1 },
        { $project: { phase: 1, scheduledFor: 1, completedAt: 1, durationMs: 1, reason: 1, 'error.message': 1 } },
      ]),
      { $set: { lastRun: { $first: '$lastRun' } } },
    ]
    return asReadable((how) => this.schedules.aggregate<ListedSchedule>(pipeline, how).toArray())
  }

  findRun(runId: string): Promise<StoredRun | null> {
    return asReadable((how) => this.runDocuments.findOne({ _id: runId }, how)) as Promise<StoredRun | null>
  }

  /** A schedule's runs, the latest first. */
  runs(schedule: string, { limit = 20, phase }: RunsOptions = {}): Promise<StoredRun[]> {
    const filter = present({ schedule, phase })
    return asReadable((how) =>
      this.runDocuments.find(filter, { sort: HISTORY_INDEX_SORT, limit, ...how }).toArray(),
    ) as Promise<StoredRun[]>
  }

  /** Figures about a schedule's runs, computed by the database on an index. */
  statistics(schedule: string, options: StatisticsOptions = {}): Promise<RunStatistics> {
    return statisticsOf(this.runDocuments, schedule, options)
  }
}
