import { AsyncLocalStorage } from 'node:async_hooks'
import { createHash } from 'node:crypto'
import { type LockExecutor, LockLost, LockProviderUnavailable } from 'phaselock/locks'
import { sleep } from '../time.js'
import type { Stored } from './backend.js'
import type { Changed } from './bell.js'
import type { Encoded } from './codec.js'
import { LoadsItself, StillLoading, StoreUnavailable } from './errors.js'
import { LastValues } from './last-values.js'
import { LOCK_PREFIX } from './lock-names.js'
import type { StoreParts } from './parts.js'
import type { LoadContext } from './types.js'

/** A caller who waits looks this often although no ring came: it was lost, or this process is deaf. */
const LOOK_EVERY_MS = 200

/** One load of a key, with all that belongs to it. Values are encoded: each caller decodes a copy of its own. */
export interface Load {
  readonly key: string
  readonly load: (context: Omit<LoadContext, 'keepFor'>) => Promise<Encoded>
  readonly isFresh: (encoded: Encoded) => boolean
  /** From the layer too. */
  readonly look: () => Promise<Stored | undefined>
  readonly lookAgain: () => Promise<Stored | undefined>
  /** @returns false if another has written in the meantime */
  readonly store: (encoded: Encoded, fence: number, seen: string | undefined) => Promise<boolean>
  readonly lockWaitMs: number
  readonly lockAtMostForMs: number
  readonly staleForMs: number | undefined
  readonly ttlMs: number | undefined
}

/** The value of a flight. */
interface Landed {
  readonly encoded: Encoded
  /** True if this flight has called `load`. */
  readonly isLoaded: boolean
}

/** A load on a call path. */
interface OnPath {
  readonly key: string
  /** Timers that the load has begun keep its path. */
  isOver: boolean
}

/**
 * `getOrLoad`: look, named lock, look again, load, store, ring. Invariants:
 * 1. callers of one process share one look and one load, and none of them shares a look from before a write of this process;
 * 2. while a process holds the key's lock no other one loads;
 * 3. what was loaded under a lock that is over is not stored over what a later holder has stored;
 * 4. each caller is answered within lockWait + lockAtMostFor and two answers of the server, even if `load` hangs.
 */
export class Loads {
  private readonly flights = new Map<string, Promise<Landed>>()
  /** The loads that this call path is in. */
  private readonly path = new AsyncLocalStorage<readonly OnPath[]>()
  private readonly last: LastValues

  constructor(
    private readonly parts: StoreParts,
    private readonly locks: () => Promise<LockExecutor>,
  ) {
    this.last = new LastValues(parts.clock)
  }

  async get(load: Load): Promise<Encoded> {
    const { key } = load
    if (this.path.getStore()?.some((one) => one.key === key && !one.isOver)) throw new LoadsItself(key)
    for (;;) {
      const known = this.flights.get(key)
      if (!known) return (await this.start(load)).encoded
      const { encoded, isLoaded } = await known
      // The others may be content with a stored value that this caller isn't. What was loaded for it too isn't to be had any fresher.
      if (isLoaded || load.isFresh(encoded)) return encoded
    }
  }

  /** This process has written the key: those who ask from now on get nothing older. */
  written(key: string): void {
    this.flights.delete(key)
  }

  private start(load: Load): Promise<Landed> {
    const { key } = load
    const flight = this.fly(load).finally(() => {
      if (this.flights.get(key) === flight) this.flights.delete(key)
    })
    this.flights.set(key, flight)
    return flight
  }

  private async fly(load: Load): Promise<Landed> {
    try {
      const stored = await load.look()
      if (stored && load.isFresh(stored.encoded)) return found(this.seen(load, stored))
      return await this.loadOrWait(load)
    } catch (error) {
      return found(this.stale(load, error))
    }
  }

  /** Two ways to the value: this process gets the lock and loads, or another one stores it. */
  private async loadOrWait(load: Load): Promise<Landed> {
    const { key, lockWaitMs, lockAtMostForMs } = load
    const over = new AbortController()
    let came: Encoded | undefined
    const watch = this.watch(load, over.signal, (encoded) => {
      came = encoded
      over.abort()
    })
    try {
      const locks = await this.locks()
      const outcome = await locks.executeWithLock(
        ({ fence, signal }) => {
          watch.stop()
          return came ? found(came) : this.loadNow(load, fence, signal)
        },
        {
          name: lockNameOf(key),
          lockAtMostFor: `${lockAtMostForMs}ms`,
          waitFor: `${lockWaitMs}ms`,
          signal: over.signal,
        },
      )
      if (outcome.executed) return outcome.result
      const stored = came ?? (await this.lookFresh(load))
      if (stored) return found(stored)
      throw new StillLoading(key, outcome.heldBy, lockWaitMs)
    } catch (error) {
      if (came) return found(came)
      throw error
    } finally {
      watch.stop()
    }
  }

  /** Looks at the value with each ring, and now and then. Errors are left to the lock and to the last look. */
  private watch(load: Load, over: AbortSignal, came: (encoded: Encoded) => void): { stop(): void } {
    const stopped = new AbortController()
    const { hearing } = this.parts
    let next = new AbortController()
    const look = () => next.abort()
    const remove = hearing.add({
      changed: (changed) => concerns(changed, load.key) && look(),
      hearing: look,
    })
    let release: (() => void) | undefined
    const stop = () => {
      stopped.abort()
      look()
      remove()
      release?.()
    }
    const run = async () => {
      // Whoever gets the lock immediately never listens.
      await sleep(LOOK_EVERY_MS / 4, AbortSignal.any([stopped.signal, next.signal]))
      if (!stopped.signal.aborted) release = hearing.need()
      while (!stopped.signal.aborted && !over.aborted) {
        next = new AbortController()
        const encoded = await this.lookFresh(load).catch(() => undefined)
        if (stopped.signal.aborted) return
        if (encoded) return came(encoded)
        await sleep(LOOK_EVERY_MS, next.signal)
      }
    }
    void run()
    return { stop }
  }

  private async loadNow(load: Load, fence: number, signal: AbortSignal): Promise<Landed> {
    const { key } = load
    const stored = await load.lookAgain()
    if (stored && load.isFresh(stored.encoded)) return found(this.seen(load, stored))
    const encoded = await this.within(key, signal, () => load.load({ key, signal }))
    this.last.keep(load, encoded, load.ttlMs)
    if (await load.store(encoded, fence, stored?.version)) return { encoded, isLoaded: true }
    return { encoded: (await this.lookFresh(load)) ?? encoded, isLoaded: true }
  }

  /** Ends when the lock does, even if the work doesn't: another process may load from then on, and void what this one gets. */
  private within(key: string, signal: AbortSignal, work: () => Promise<Encoded>): Promise<Encoded> {
    const here: OnPath = { key, isOver: false }
    const path = [...(this.path.getStore() ?? []).filter(({ isOver }) => !isOver), here]
    return new Promise((resolve, reject) => {
      const lost = () => reject(signal.reason ?? new LockLost(lockNameOf(key)))
      if (signal.aborted) return lost()
      signal.addEventListener('abort', lost, { once: true })
      this.path
        .run(path, work)
        .then(resolve, reject)
        .finally(() => {
          here.isOver = true
          signal.removeEventListener('abort', lost)
        })
    })
  }

  private async lookFresh(load: Load): Promise<Encoded | undefined> {
    const stored = await load.lookAgain()
    return stored && load.isFresh(stored.encoded) ? this.seen(load, stored) : undefined
  }

  private seen(load: Load, { encoded, leftMs }: Stored): Encoded {
    this.last.keep(load, encoded, leftMs)
    return encoded
  }

  private stale(load: Load, error: unknown): Encoded {
    const isAway = error instanceof StoreUnavailable || error instanceof LockProviderUnavailable
    const kept = isAway ? this.last.get(load) : undefined
    if (!kept || !load.isFresh(kept)) throw error
    this.last.report(load.key, error, this.parts.logger)
    return kept
  }
}

const found = (encoded: Encoded): Landed => ({ encoded, isLoaded: false })

/** The key's lock. Names of locks have limits of their own: a key beyond them is there by its hash. */
export function lockNameOf(key: string): string {
  const isPlain = key.length <= 200 && !/\s$/.test(key)
  return LOCK_PREFIX + (isPlain ? key : createHash('sha256').update(key).digest('hex'))
}

const concerns = (changed: Changed, key: string): boolean =>
  changed === undefined || (changed.keys ? changed.keys.includes(key) : key.startsWith(`${changed.prefix}:`))
