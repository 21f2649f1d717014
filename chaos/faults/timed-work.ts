import { type Db, MongoClient } from 'mongodb'
import { connectDatabase } from '../../dist/database/index.js'
import { LockExecutor, mongoLockProvider } from '../../dist/locks/index.js'
import { Replica } from '../../dist/phases/index.js'
import { Schedules } from '../../dist/schedules/index.js'
import { sleep, systemClock } from '../../dist/time/index.js'
import { waitFor } from '../proof/wait-for.ts'
import { type EndedRun, TimedRecord } from './timed-record.ts'

const LOCKS = ['lock-a', 'lock-b']
const LOCK_AT_MOST_MS = 4_000
const SECTION_MS = 150
const BETWEEN_MS = 200
const START_AGAIN_MS = 500
const SCHEDULES = ['schedule-a', 'schedule-b']
const SCHEDULE = { task: 'work', cron: '*/2 * * * * *', coalesce: false, misfireGraceTime: null }
export const SCHEDULE_EVERY_MS = 2_000

export interface TimedWorkConfig {
  readonly name: string
  readonly uri: string
  readonly database: string
  readonly ledgerUri: string
  readonly lockTimeoutMs: number
}

/** What a replica's process does besides its gateways: sections under named locks, and the runs of schedules. It goes on until the process ends. */
export async function doTimedWork({ name, uri, database, ledgerUri, lockTimeoutMs }: TimedWorkConfig): Promise<void> {
  const record = new TimedRecord(new MongoClient(ledgerUri).db(database))
  const lockTimeout = `${lockTimeoutMs}ms` as const
  const { db } = await persistently(() => connectDatabase({ uri, database, lockTimeout, timeout: '1m' }))
  const locks = mongoLockProvider(db, { name })
  const work = async (_: unknown, run: { readonly id: string }) => record.tried(run.id)
  const replica = await persistently(async () => {
    const { lifecycles } = new Schedules({ db, name, locks, lockTimeout, lockAtMostFor: '12s', tasks: { work } })
    const starting = new Replica({ db, lifecycles, name: `${name}-schedules`, logger: SILENT })
    await starting.start()
    return starting
  })
  process.once('SIGTERM', () => void replica.stop())
  await Promise.all(LOCKS.map((lock) => enterAgainAndAgain(lock, new LockExecutor(locks), record)))
}

async function enterAgainAndAgain(lock: string, executor: LockExecutor, record: TimedRecord): Promise<never> {
  for (;;) {
    const beforeMs = systemClock.monotonicMs()
    const isHeld = () => systemClock.monotonicMs() - beforeMs < LOCK_AT_MOST_MS
    const section = ({ fence }: { readonly fence: number }) =>
      record.within(lock, fence, isHeld, () => sleep(Math.random() * SECTION_MS))
    // While the database is away nobody has a lock.
    await executor
      .executeWithLock(section, { name: lock, lockAtMostFor: `${LOCK_AT_MOST_MS}ms` })
      .catch(() => undefined)
    await sleep(Math.random() * BETWEEN_MS)
  }
}

/** The database may be away when a replica starts. */
export async function persistently<T>(start: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await start()
    } catch {
      await sleep(START_AGAIN_MS)
    }
  }
}

const nothing = () => undefined
export const SILENT = { debug: nothing, info: nothing, warn: nothing, error: nothing }

/** The schedules, as their owner sees them. */
export class TimedOwner {
  private readonly db: Db
  private readonly schedules: Schedules

  constructor(db: Db) {
    this.db = db
    this.schedules = new Schedules({ db })
  }

  async begin(): Promise<void> {
    for (const id of SCHEDULES) await this.schedules.upsert(id, SCHEDULE)
  }

  /** No more due times; resolves to all runs when none is left to do, or nothing has moved for a minute. */
  async end(): Promise<EndedRun[]> {
    for (const id of SCHEDULES) await this.schedules.upsert(id, { ...SCHEDULE, endAt: systemClock.now() })
    const runs = this.db.collection<EndedRun>('runs')
    const open = () => runs.countDocuments({ phase: { $in: ['Queued', 'Running'] } })
    await waitFor(async () => (await open()) === 0, { progress: open, everyMs: 500 })
    return await runs.find().toArray()
  }
}
