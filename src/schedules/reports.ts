import type { Db } from 'mongodb'
import { protocolCollection } from '../database/index.js'
import { onClaimIndex, readLockTimeouts } from '../lock/index.js'
import { SCHEDULE_PHASES, type SchedulePhase } from './decide.js'
import { lookupRuns } from './indexes.js'
import { RUN_ENDS, type ScheduleObserver, type ScheduleObservers } from './observer.js'

const MAX_TIME_MS = 5_000
/**
 * The number of latest runs that are queried per schedule: one that fails every minute keeps 43,000 failed runs, and is queried at each
 * scrape.
 */
const LATEST_RUNS = 1_000

/** Counts of schedules at a moment, on all replicas together. */
export interface ScheduleCounts {
  /** The number of schedules in each phase, each counted up to the limit that was given. */
  readonly phases: Readonly<Record<SchedulePhase, number>>
  /** Runs in progress, including those of a replica that was lost. */
  readonly running: number
  /** The age of the oldest of them, since its first try; 0 if there is none. */
  readonly oldestRunSeconds: number
}

/** The time when an active schedule last ran to its end. */
export interface LastSuccess {
  /** The schedule's id. */
  readonly schedule: string
  /** null if none of its latest kept runs (at most 1,000) succeeded. */
  readonly at: Date | null
}

/** Reports about schedules beyond the steps of their documents: events of this process, and counts from the database. */
export class ScheduleReports {
  /** The outcomes and reasons that `ended` may report. */
  readonly ends = RUN_ENDS

  /** The name of the schedules' lifecycle; that of their runs is `<name>.runs`. */
  readonly lifecycle: string

  constructor(
    private readonly names: { readonly schedules: string; readonly runs: string },
    private readonly observers: ScheduleObservers,
    private readonly tasks: { readonly names: readonly string[] },
  ) {
    this.lifecycle = names.schedules
  }

  /** The names of the tasks that this process knows so far; they are labels of metrics. */
  get taskNames(): readonly string[] {
    return this.tasks.names
  }

  /** @returns a function that removes the observer */
  observe(observer: ScheduleObserver): () => void {
    return this.observers.add(observer)
  }

  /**
   * Counts keys of the claim index, at most `limit` of each phase; for runs in progress also the documents.
   * @returns undefined before a replica has registered schedules: there is no index to count on
   */
  async counts(db: Db, limit: number): Promise<ScheduleCounts | undefined> {
    if (!(await this.isRegistered(db))) return undefined
    const schedules = protocolCollection(db, this.names.schedules)
    const count = (phase: SchedulePhase) =>
      onClaimIndex(schedules, (hint) => schedules.countDocuments({ phase }, { hint, limit, maxTimeMS: MAX_TIME_MS }))
    const [running, ...counts] = await Promise.all([this.running(db, limit), ...SCHEDULE_PHASES.map(count)])
    const phases = Object.fromEntries(SCHEDULE_PHASES.map((phase, i) => [phase, counts[i]]))
    return { phases: phases as ScheduleCounts['phases'], ...running }
  }

  private async running(db: Db, limit: number): Promise<Omit<ScheduleCounts, 'phases'>> {
    const runs = protocolCollection(db, this.names.runs)
    const pipeline = [
      { $match: { phase: 'Running' } },
      { $limit: limit },
      { $project: { ms: { $subtract: ['$$NOW', '$startedAt'] } } },
      { $group: { _id: null, running: { $sum: 1 }, oldestMs: { $max: '$ms' } } },
    ]
    const [found] = await onClaimIndex(runs, (hint) =>
      runs
        .aggregate<{ running: number; oldestMs: number | null }>(pipeline, { hint, maxTimeMS: MAX_TIME_MS })
        .toArray(),
    )
    return { running: found?.running ?? 0, oldestRunSeconds: Math.max(0, found?.oldestMs ?? 0) / 1_000 }
  }

  /**
   * The last successes of active schedules that have run, found by the history index: from the latest run back to the first that succeeded.
   * @param given the ids; 'few': all schedules if there are at most `most`, else none
   */
  async lastSuccesses(db: Db, given: readonly string[] | 'few', most: number): Promise<LastSuccess[]> {
    if (!(await this.isRegistered(db))) return []
    const names = given === 'few' ? await this.few(db, most) : given
    if (names.length === 0) return []
    const found = await protocolCollection<{ _id: string }>(db, this.names.schedules)
      .aggregate<{ _id: string; latest: { at?: Date }[]; any: unknown[] }>(
        [
          { $match: { _id: { $in: [...names] }, phase: 'Active' } },
          { $project: { _id: 1 } },
          lookupRuns(this.names.runs, 'latest', [
            { $limit: LATEST_RUNS },
            { $match: { phase: 'Completed' } },
            { $limit: 1 },
            { $project: { _id: 0, at: '$completedAt' } },
          ]),
          lookupRuns(this.names.runs, 'any', [{ $limit: 1 }, { $project: { _id: 1 } }]),
        ],
        { maxTimeMS: MAX_TIME_MS },
      )
      .toArray()
    return found
      .filter(({ any }) => any.length > 0)
      .map(({ _id, latest }) => ({ schedule: _id, at: latest[0]?.at ?? null }))
  }

  private async few(db: Db, most: number): Promise<string[]> {
    const found = await protocolCollection<{ _id: string }>(db, this.names.schedules)
      .find({}, { projection: { _id: 1 }, hint: { _id: 1 }, limit: most + 1, maxTimeMS: MAX_TIME_MS })
      .toArray()
    return found.length > most ? [] : found.map(({ _id }) => String(_id))
  }

  private async isRegistered(db: Db): Promise<boolean> {
    const inForce = await readLockTimeouts(db, [this.lifecycle], { maxTimeMS: MAX_TIME_MS })
    return inForce.has(this.lifecycle)
  }
}
