import { BSON, type Document } from 'mongodb'
import { type CancelRequest, type DeadlineHold, idBytes, isValid, type Lease, underHold } from '../../../lock/index.js'
import type { StepAborted } from '../../errors/errors.js'
import type { LimitNeed, Phase } from '../../model/model.js'
import type { StepKind } from '../concurrency/step-semaphore.js'

/** The age of its data after which a chain of steps reads its document again, and yields if it must. */
export const FRESH_MS = 1_000

/** A document that this replica holds, from its claim to the end of its lease. */
export interface Held {
  /** The document as of the claim, the last refresh, or the last write of this replica. */
  document: Document
  /** The monotonic time of the read that `document` comes from. */
  readAtMs: number
  readonly lease: Lease
  /** The reason why the driver can't read it: no handler is called. */
  readonly unreadable: Error | undefined
  readonly phase: Phase
  /** The kind of place that its steps run in. */
  readonly kind: StepKind
  /** The monotonic time of the claim: a chain of steps that goes on for long yields. */
  readonly claimedAtMs: number
  /** The monotonic time when its current round began: the wait for a place, its step and the recording. */
  queuedAtMs: number
  /** Steps in a row without a new phase, a wait or an error. */
  steps: number
  /** The step that was recorded last in this phase; undefined: it ended in something other than `again`, or there is no such step. */
  lastAgain: string | null | undefined
  run: CurrentStep | undefined
  /** The limits that have slots in use for it. */
  limits: readonly LimitNeed[] | undefined
  /** True if its key was changed while it was claimed, so it has no slot of that key. */
  readonly hasNoPartitionSlot: boolean
  /** The owner's request to stop its step. */
  cancelled?: CancelRequest
}

/** The parts of a document's progress that show if its steps go in circles. */
export function stepsSoFar(progress: Document | undefined, phase: Phase): Pick<Held, 'steps' | 'lastAgain'> {
  const last: unknown = Array.isArray(progress?.['history']) ? progress['history'].at(-1) : undefined
  const { outcome, from, step } = Object(last) as Document
  return {
    steps: countOf(progress?.['steps']),
    lastAgain: outcome === 'again' && from === phase.name ? step : undefined,
  }
}

/** A running step, as seen by the code that looks after its lease. */
export interface CurrentStep {
  readonly aborted: StepAborted | undefined
  /** True once its handler has begun; one that waits for a thread may be called off as if it had never been called. */
  readonly hasBegun: boolean
  ranMs(): number
  abort(why: StepAborted['why'], detail?: string): void
  /**
   * To be called when it is past its step timeout or deadline. From the first call on it has `graceMs` to end, and a few turns of the event loop
   * however long that was blocked; then it is given up.
   */
  ranOver(graceMs: number): void
}

/** A count in `progress` as the server takes it: an owner, or a client that reads every int64 as a bigint, may have put anything there. */
export function countOf(value: unknown): number {
  const isNumber = typeof value === 'number' || typeof value === 'bigint' || value instanceof BSON.Long
  const count = isNumber ? Math.trunc(Number(value)) : 0
  return count >= 0 && count < 1e9 ? count : 0
}

/**
 * The time of its phase's deadline (server time), null when it has no deadline.
 * @param hold set while a step of the server's clock isn't confirmed
 */
export function deadlineOf(held: Held, progress: string, hold?: DeadlineHold): Date | null {
  const since: unknown = held.document[progress]?.since // the time when it entered its phase
  if (!held.phase.deadline || !(since instanceof Date && isValid(since))) return null
  return underHold(new Date(since.getTime() + held.phase.deadline.afterMs), hold)
}

/** The time that it has waited so far: since it was last touched, or recorded a step, or entered its phase; 0 when none is known. */
export function waitedMs(held: Held, progress: string, now: Date): number {
  const { since, at } = held.document[progress] ?? {}
  const times = [held.document['updatedAt'], at, since]
    .filter((date) => date instanceof Date && date <= now)
    .map((date) => date.getTime())
  return times.length > 0 ? now.getTime() - Math.max(...times) : 0
}

/** The bytes of `_id`s after which no more is claimed. One more claim comes on top; a command holds 16 MB, and names each up to twice. */
const MOST_ID_BYTES = 4_000_000

export class HeldDocuments {
  private readonly byId = new Map<string, Held>()
  private readonly superseded = new Set<Held>()
  private readonly sizes: Record<StepKind, number> = { loop: 0, thread: 0 }
  private bytesOfIds = 0
  private waiters: (() => void)[] = []

  get size(): number {
    return this.byId.size
  }

  sizeOf(kind: StepKind): number {
    return this.sizes[kind]
  }

  /** True once the `_id`s of held documents fill one command: renewals name all of them. */
  get isFull(): boolean {
    return this.bytesOfIds > MOST_ID_BYTES
  }

  /** The held documents, and lost ones whose handlers still run. */
  all(): Held[] {
    return [...this.byId.values(), ...this.superseded]
  }

  get watched(): number {
    return this.byId.size + this.superseded.size
  }

  get(key: string): Held | undefined {
    return this.byId.get(key)
  }

  has(held: Held): boolean {
    return this.byId.get(held.lease.key) === held
  }

  /**
   * Adds a document that was just claimed. One that was held already had been lost (this process was paused for longer than its lease lasted): that
   * claim is over, and its handler is asked to stop.
   */
  add(held: Held): void {
    const { key } = held.lease
    const before = this.byId.get(key)
    if (before) this.supersede(before)
    else this.bytesOfIds += idBytes(held.lease.id)
    this.byId.set(key, held)
    this.sizes[held.kind] += 1
  }

  drop(held: Held): void {
    held.lease.end()
    this.superseded.delete(held)
    if (this.has(held)) {
      this.byId.delete(held.lease.key)
      this.bytesOfIds -= idBytes(held.lease.id)
      this.sizes[held.kind] -= 1
    }
    if (this.byId.size === 0) for (const resolve of this.waiters.splice(0)) resolve()
  }

  async empty(): Promise<void> {
    while (this.byId.size > 0) await new Promise<void>((resolve) => this.waiters.push(resolve))
  }

  private supersede(before: Held): void {
    before.lease.end()
    this.sizes[before.kind] -= 1
    if (!before.run) return
    before.run.abort('lease lost')
    this.superseded.add(before)
  }
}
