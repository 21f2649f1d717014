import { createHash } from 'node:crypto'
import { ActiveLock, LockLost, type LockProvider, type SimpleLock } from '../locks/index.js'
import type { Logger } from '../phases/index.js'
import { type Clock, formatMs } from '../time/index.js'
import { type Overlap, present, type RunDocument } from './documents.js'
import type { ScheduleObservers } from './observer.js'

export interface RunLocksOptions {
  readonly provider: () => LockProvider
  /** The time for which a lock outlives a holder that died; it is extended every third of that time. */
  readonly lockAtMostForMs: number
  readonly clock: Clock
  readonly logger: Logger
  readonly observers: ScheduleObservers
}

const MOST_REENTRY = 100
const MOST_KEPT = 1_000
/** The age from which a kept lock is requested again. */
const FRESH_MS = 5_000

/** Characters that a lock's name must not contain, whatever a schedule's `_id` is. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: no store takes them alike
const NO_NAME = /\s$|[\u0000-\u001f]/
const MOST_NAME = 255
/** The longest name that ShedLock's table takes. */
const MOST_NAME_IN_TABLE = 64

/**
 * The name of a schedule's lock: the first of its places; a schedule with a higher `maxInstances` has more of them. An `_id` that is
 * too long for the locks' store is replaced by a digest.
 * @param kind the kind of the locks' provider
 */
export function lockNameOf(schedule: string, place = 1, kind = 'mongodb'): string {
  const most = (kind === 'postgres' || kind === 'mysql' ? MOST_NAME_IN_TABLE : MOST_NAME) - '#100'.length
  const name = `scheduler_lock:${schedule}`
  const fitting = name.length <= most && !NO_NAME.test(name) ? name : `scheduler_lock:${hashed(schedule)}`
  return `${fitting}${place === 1 ? '' : `#${place}`}`
}

const hashed = (text: string) => createHash('sha256').update(text).digest('hex').slice(0, 40)

/** The run that a lock belongs to, regardless of the number of replicas that run it one after the other. */
const reentryOf = (runId: string): string =>
  runId.length <= MOST_REENTRY && !/[%|~]/.test(runId) ? runId : hashed(runId)

/**
 * The named locks of runs. Invariant: a run's task runs only under one of its schedule's places, each of which has one holder
 * on all replicas, scheduled or manual. A place that carries this run's id is its own: another replica took the run over.
 */
export class RunLocks {
  /** Locks of runs that are Queued, on their way to this or another replica as Running. */
  private readonly taken = new Map<string, RunLock>()

  constructor(private readonly options: RunLocksOptions) {}

  /**
   * Takes one of the run's places.
   * @param again true if a replica may have entered for this run before: then its place is looked for first
   * @throws LockProviderUnavailable: nothing is run then
   */
  async enter(run: Readonly<RunDocument>, again = false): Promise<RunLock | { heldBy: Overlap }> {
    const { lockAtMostForMs, clock } = this.options
    const provider = this.options.provider()
    const reentry = reentryOf(run._id)
    const names = this.namesOf(run)
    for (const name of again ? await this.ownFirst(names, reentry) : names) {
      const sentAtMs = clock.monotonicMs()
      const lock = await provider.lock({ name, lockAtMostFor: `${lockAtMostForMs}ms`, reentry })
      if (lock) return new RunLock(provider, lock, sentAtMs, this.options)
    }
    return { heldBy: await this.holder(names[0]!) }
  }

  /**
   * The places with the run's own one first. Entering another place would leave the run's own, which the previous replica took, locked
   * without a holder.
   */
  private async ownFirst(names: readonly string[], reentry: string): Promise<readonly string[]> {
    if (names.length === 1) return names
    const own = await this.ownOf(names, reentry)
    return own === undefined ? names : [own, ...names.filter((name) => name !== own)]
  }

  /** The place that carries a run's id. */
  private async ownOf(names: readonly string[], reentry: string): Promise<string | undefined> {
    for (const name of names) {
      const record = await this.options.provider().find?.(name)
      if (record?.held && record.lockedBy?.endsWith(`|${reentry}`)) return name
    }
    return undefined
  }

  /** Keeps the lock of a run that is about to be Running: if this process gets the run soon, it need not request the lock again. */
  keep(run: Readonly<RunDocument>, lock: RunLock): void {
    if (this.taken.size >= MOST_KEPT) this.taken.clear()
    this.taken.set(run._id, lock)
  }

  /** The kept lock, if no run has entered since and it still lasts long enough. */
  kept(run: Readonly<RunDocument>): RunLock | undefined {
    const lock = this.taken.get(run._id)
    this.taken.delete(run._id)
    return lock && lock.fence === run.lockFence && lock.isFresh ? lock : undefined
  }

  /**
   * Frees the lock that a finished run may have left behind: one whose replica died, or a grant whose answer was never received.
   * @throws LockProviderUnavailable
   */
  async release(run: Readonly<RunDocument>): Promise<void> {
    const reentry = reentryOf(run._id)
    const name = await this.ownOf(this.namesOf(run), reentry)
    if (name === undefined) return
    const lock = await this.options
      .provider()
      .lock({ name, lockAtMostFor: `${this.options.lockAtMostForMs}ms`, reentry })
    await lock?.unlock()
  }

  private namesOf({ schedule, maxInstances }: Readonly<RunDocument>): string[] {
    const { kind } = this.options.provider()
    return Array.from({ length: Math.max(1, maxInstances) }, (_, i) => lockNameOf(schedule, i + 1, kind))
  }

  private async holder(name: string): Promise<Overlap> {
    const record = await this.options.provider().find?.(name)
    const [token = '', run] = record?.lockedBy?.split('|') ?? []
    return present({
      run: run ? decodeURIComponent(run) : undefined,
      by: token ? token.replace(/#[^#]*$/, '') : undefined,
      since: record?.lockedAt,
    })
  }
}

/** A run's lock, taken for a Queued run and held while its task runs. */
export class RunLock {
  private readonly active: ActiveLock

  constructor(
    provider: LockProvider,
    lock: SimpleLock,
    /** When the command that took it was sent. */
    private readonly takenAtMs: number,
    private readonly options: RunLocksOptions,
  ) {
    const { lockAtMostForMs, clock } = options
    this.active = new ActiveLock(provider, lock, lockAtMostForMs, takenAtMs, lockAtMostForMs / 3, clock)
  }

  get name(): string {
    return this.active.name
  }
  get fence(): number {
    return this.active.current.fence
  }

  get isFresh(): boolean {
    const { clock, lockAtMostForMs } = this.options
    return clock.monotonicMs() - this.takenAtMs < Math.min(FRESH_MS, lockAtMostForMs / 3)
  }

  /**
   * Extends it every third of its time, and sooner if that failed, until `release` or `forget`. `onLost` is called once, when the run no
   * longer holds it, or when it couldn't be extended with a third of its time left.
   */
  watch(onLost: () => void): void {
    this.active.signal.addEventListener('abort', onLost, { once: true })
    this.active.watch((error) => {
      if (error instanceof LockLost) return
      this.options.logger.warn(`could not extend the lock '${this.name}': ${String(error)}`)
      this.options.observers.tell('lockFailed', { lock: this.name, action: 'extend', error })
    })
  }

  /** Stops extending it: the replica that takes the run over enters it again, or it expires. */
  forget(): void {
    this.active.end()
  }

  /** Frees it; a lock that can't be freed now expires. */
  async release(): Promise<void> {
    this.forget()
    await this.active.unlock().catch((error: unknown) => {
      this.options.observers.tell('lockFailed', { lock: this.name, action: 'unlock', error })
      this.options.logger.warn(
        `could not free the lock '${this.name}'; it expires in at most ${formatMs(this.options.lockAtMostForMs)}: ${String(error)}`,
      )
    })
  }
}
