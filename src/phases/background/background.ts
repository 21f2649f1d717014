import type { Db } from 'mongodb'
import { type Clock, sleep } from '../../time/index.js'
import { causesText, recordedError } from '../errors/recorded-error.js'
import type { LifecycleModel } from '../model/model.js'
import type { Logger } from '../reporting/logger.js'
import type { ReplicaObserver } from '../reporting/observer.js'

/**
 * Something happened that documents may want to know of. With it only one of several replicas that hear of it wakes a document: one that was woken
 * for news of this source with this version or a later one isn't woken again.
 */
export interface News {
  /** The source: versions of one source can be compared. */
  readonly source: string
  /** A whole number that grows with each news of its source. */
  readonly version: number
}

/** The context that background work of a lifecycle gets. */
export interface AlongsideContext {
  /** The lifecycle that it works for. */
  readonly model: LifecycleModel
  /** The replica's database. */
  readonly db: Db
  /** The replica's identity: each token of its leases begins with it. */
  readonly replica: string
  /** Writes to the replica's log. */
  readonly logger: Logger
  /** Reports to the replica's observers. */
  readonly observer: Required<ReplicaObserver>
  /** The replica's clock. */
  readonly clock: Clock
  /** Aborts when the replica stops: the work then ends as soon as it can. */
  readonly signal: AbortSignal
  /**
   * Ends the sleep of documents in working phases, whichever replica then runs their steps. One that is held is woken when it has been let go, unless
   * another step of it has begun since. Returns immediately and never throws: a hint, whose loss costs a back-off pause.
   */
  wake(ids: readonly unknown[], news?: News): void
  /** Says that documents of this lifecycle may have come due in another way: this replica looks now, and the others are notified. */
  look(): void
  /**
   * Sets the source of this work's problems: one line each, empty while all is well. They are shown with `replica.status().problems` and `/readyz`;
   * the replica is ready all the same.
   */
  report(problems: () => readonly string[]): void
}

/**
 * Background work of a lifecycle on each replica that works, from its start until its `signal` aborts (docs/kubernetes-watches.md). It has to recover
 * by itself: once it throws or returns earlier it isn't started again.
 */
export type Alongside = (context: AlongsideContext) => Promise<void>

type Work = readonly [work: Alongside, context: Omit<AlongsideContext, 'signal' | 'report'>]

/** The background work of a replica's lifecycles. None of it delays or fails the start; work that doesn't end is left behind at the stop. */
export class BackgroundTasks {
  private readonly stopped = new AbortController()
  private running: Promise<unknown> | undefined
  private readonly sources = new Set<() => readonly string[]>()

  constructor(
    private readonly works: () => readonly Work[],
    private readonly logger: Logger,
  ) {}

  /** The problems that running work reports. */
  get problems(): string[] {
    return [...this.sources].flatMap((source) => source())
  }

  /** Returns before any of them has begun. */
  start(): void {
    if (this.stopped.signal.aborted) return
    this.running ??= Promise.all(this.works().map((one) => this.run(one)))
  }

  /** Resolves when all have ended, or after `mostMs`. */
  async stop(mostMs: number): Promise<void> {
    this.stopped.abort()
    if (!this.running) return
    const over = new AbortController()
    const late = sleep(mostMs, { signal: over.signal }).then(() => 'late')
    const first = await Promise.race([this.running, late])
    over.abort()
    if (first === 'late')
      this.logger.warn(`background work is still running ${mostMs} ms after its signal aborted; it is left behind`)
  }

  private async run([work, context]: Work): Promise<void> {
    const { signal } = this.stopped
    // Not in the start's own turn: the part before its first pause delays nothing.
    await new Promise((resolve) => setImmediate(resolve))
    if (signal.aborted) return
    let source: (() => readonly string[]) | undefined
    const drop = () => {
      if (source) this.sources.delete(source)
    }
    const report = (problems: () => readonly string[]) => {
      drop()
      source = () => {
        try {
          return problems()
        } catch (error) {
          return [
            `${context.model.name}: the problems of its background work can't be read: ${causesText(recordedError(error)) || String(error)}`,
          ]
        }
      }
      this.sources.add(source)
    }
    try {
      await work({ ...context, signal, report })
      if (!signal.aborted) context.logger.debug(`${context.model.name}: its background work has ended`)
    } catch (error) {
      if (signal.aborted) return
      const known = recordedError(error)
      const why = `${known.message}${causesText(known)}`
      context.logger.error(`${context.model.name}: its background work has failed and isn't started again: ${why}`)
    } finally {
      drop()
    }
  }
}
