import type { Db } from 'mongodb'
import type { Cron } from 'phaselock/schedules'
import type { OwnMetrics, OwnRow } from 'phaselock/telemetry'
import { OPEN_PHASES } from './definition.js'
import { COLLECTIONS, type Repository, type SyncCounters } from './documents.js'
import { type SuccessAge, successAge } from './success-age.js'

/** The most repositories that have series of their own: those that are furthest behind their schedules. */
const SHOWN = 50
const LOOKED_AT = 10_000
const COUNTED = 10_000
const MAX_TIME_MS = 5_000

/** The ways in which a sync ends. */
export type SyncOutcome = 'completed' | 'failed' | 'cancelled'

const COUNTERS = {
  repository_syncs_total: 'Syncs of repositories that this replica ended, by outcome: completed, failed, cancelled',
  repository_files_indexed_total: 'Files whose content this replica has indexed, skipped ones included',
  repository_chunks_total: 'Chunks that this replica has stored in vector stores',
  repository_texts_total: 'Texts whose vectors this replica needed, by where they came from: embedded, reused',
} as const

const GAUGES = {
  repository_syncs_open: `Syncs of repositories that haven't ended (all replicas; counted up to ${COUNTED})`,
  repository_success_age_seconds: `How long ago a repository was last in sync, counted from its creation if it never was; of those with a schedule, the ${SHOWN} that are furthest behind`,
  repository_interval_seconds: 'The time between two syncs of these repositories',
} as const

/** The metrics of syncs: counters of this process, and gauges from the database. */
export class SyncMetrics implements OwnMetrics {
  readonly counters = [
    { name: 'repository_syncs_total', help: COUNTERS.repository_syncs_total, labels: ['outcome'] },
    { name: 'repository_files_indexed_total', help: COUNTERS.repository_files_indexed_total },
    { name: 'repository_chunks_total', help: COUNTERS.repository_chunks_total },
    { name: 'repository_texts_total', help: COUNTERS.repository_texts_total, labels: ['vectors'] },
  ]
  readonly gauges = [
    { name: 'repository_syncs_open', help: GAUGES.repository_syncs_open },
    { name: 'repository_success_age_seconds', help: GAUGES.repository_success_age_seconds, labels: ['repository'] },
    { name: 'repository_interval_seconds', help: GAUGES.repository_interval_seconds, labels: ['repository'] },
  ]
  private readonly outcomes = { completed: 0, failed: 0, cancelled: 0 }
  private readonly work = { files: 0, chunks: 0, embedded: 0, reused: 0 }

  /** Counts a sync that this process ends. A write that is lost later makes another process count it too. */
  ended(outcome: SyncOutcome): void {
    this.outcomes[outcome] += 1
  }

  /** Counts a batch that this process has indexed. */
  indexed(files: number, counters: Pick<SyncCounters, 'chunks' | 'embedded' | 'reused'>): void {
    this.work.files += files
    this.work.chunks += counters.chunks
    this.work.embedded += counters.embedded
    this.work.reused += counters.reused
  }

  /** Series begin with 0, so that the first failure is an increase. */
  counted(): Readonly<Record<keyof typeof COUNTERS, readonly OwnRow[]>> {
    const { files, chunks, embedded, reused } = this.work
    return {
      repository_syncs_total: Object.entries(this.outcomes).map(([outcome, value]) => [{ outcome }, value]),
      repository_files_indexed_total: [[{}, files]],
      repository_chunks_total: [[{}, chunks]],
      repository_texts_total: [
        [{ vectors: 'embedded' }, embedded],
        [{ vectors: 'reused' }, reused],
      ],
    }
  }

  async count(db: Db): Promise<Readonly<Record<keyof typeof GAUGES, readonly OwnRow[]>>> {
    const [open, ages] = await Promise.all([openSyncs(db), furthestBehind(db)])
    const rows = (value: (age: SuccessAge) => number): OwnRow[] =>
      ages.map(({ repository, age }) => [{ repository }, value(age) / 1_000])
    return {
      repository_syncs_open: [[{}, open]],
      repository_success_age_seconds: rows(({ sinceMs }) => sinceMs),
      repository_interval_seconds: rows(({ intervalMs }) => intervalMs),
    }
  }
}

const openSyncs = (db: Db): Promise<number> =>
  db
    .collection(COLLECTIONS.syncs)
    .countDocuments({ phase: { $in: [...OPEN_PHASES] } }, { limit: COUNTED, maxTimeMS: MAX_TIME_MS })

async function furthestBehind(db: Db): Promise<{ readonly repository: string; readonly age: SuccessAge }[]> {
  const found = await db
    .collection<Repository>(COLLECTIONS.repositories)
    .aggregate<Repository & { readonly createdAt?: Date; readonly now: Date }>(
      [
        { $match: { schedule: { $exists: true }, isActive: { $ne: false }, state: { $ne: 'Deleted' } } },
        { $limit: LOOKED_AT },
        { $project: { schedule: 1, isActive: 1, createdAt: 1, 'synced.at': 1, now: '$$NOW' } },
      ],
      { maxTimeMS: MAX_TIME_MS },
    )
    .toArray()
  const crons = new Map<string, Cron>()
  return found
    .flatMap((one) => {
      const age = successAge(one, one.now, crons)
      return age ? [{ repository: one._id, age, behind: age.sinceMs / age.intervalMs }] : []
    })
    .sort((a, b) => b.behind - a.behind)
    .slice(0, SHOWN)
}
