import type { Db } from 'mongodb'
import type { Logger } from 'phaselock'
import { doDuty, protocolCollection } from 'phaselock/tasks'
import { sleep } from '../time.js'
import type { Backend } from './backend.js'
import { LOCK_PREFIX } from './lock-names.js'

const EVERY = '10m'
const EVERY_MS = 600_000
const FIRST_AFTER_MS = 30_000
const LOCKS = 'shedLock'
const LOCK_KEPT_MS = 86_400_000

/**
 * Removes values that have expired. In MongoDB it is a duty, which one process of all does each ten minutes (`phaselock status` shows it); in memory
 * each process does its own.
 */
export class Expired {
  private readonly stopped = new AbortController()
  private isStarted = false

  constructor(
    private readonly backend: Backend,
    private readonly db: Db | undefined,
    private readonly collection: string,
    private readonly logger: Logger,
  ) {}

  /** Takes part in the duty from now on, with a timer that keeps no process alive. */
  start(): void {
    if (this.isStarted) return
    this.isStarted = true
    void this.run()
  }

  stop(): void {
    this.stopped.abort()
  }

  async removeAll(): Promise<number> {
    let removed = 0
    for (;;) {
      const batch = await this.backend.removeExpired!()
      removed += batch
      if (batch < (this.backend.batch ?? 1)) break
    }
    await this.removeLocks()
    return removed
  }

  private async run(): Promise<void> {
    const { signal } = this.stopped
    for (let pauseMs = FIRST_AFTER_MS; ; pauseMs = EVERY_MS) {
      await sleep(pauseMs * (1 + Math.random() / 10), signal, true)
      if (signal.aborted) return
      await this.once().catch((error: unknown) => {
        this.logger.warn(
          `removing expired values failed, next in 10 min: ${error instanceof Error ? error.message : String(error)}`,
        )
      })
    }
  }

  private async once(): Promise<void> {
    const run = async () => ({ removed: await this.removeAll() })
    if (!this.db) return void (await run())
    await doDuty(this.db, { name: `expired values in ${this.collection}`, every: EVERY, run })
  }

  /** Locks of keys are named after them, and records of locks stay when they are free. A fence goes on growing without them. */
  private async removeLocks(): Promise<void> {
    if (!this.db) return
    const isOld = { $lte: ['$lockUntil', { $subtract: ['$$NOW', LOCK_KEPT_MS] }] }
    await protocolCollection<{ _id: string }>(this.db, LOCKS).deleteMany({
      _id: { $gte: LOCK_PREFIX, $lt: `${LOCK_PREFIX.slice(0, -1)};` },
      $expr: { $and: [{ $eq: [{ $type: '$lockUntil' }, 'date'] }, isOld] },
    })
  }
}
