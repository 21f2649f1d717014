import { PhaseMemory } from '../../../lock/index.js'
import { SlotWaiter } from '../limits/limit-leases.js'

/** The furthest time ahead that a queue remembers. Later ones are left to ticks. */
const HORIZON_MS = 30_000
/** The span of a bucket: documents that come due within the same one are claimed together. No try is repeated sooner than after this time. */
const BUCKET_MS = 50

/** The time after which documents of a phase are dated, if each look since has found something due in it. Most are claimed immediately. */
const FIRST_DATED_AFTER_MS = 5_000
const DATED_EVERY_MS = 30_000

/**
 * The pauses between requests of documents that wait for slots of other replicas, because nothing else announces free ones. They are short at
 * first, because a replica with more than its share gives some back. They grow to an eighth of the time waited, because a long step isn't over in a
 * moment.
 */
const ASK_AGAIN_MS = { first: 20, often: 250, most: 1_000 }

/** The time after which it is worth asking again. @param tries the number of requests in a row that got nothing */
export function askAgainMs(waitedMs: number, tries = Number.POSITIVE_INFINITY): number {
  const { first, often, most } = ASK_AGAIN_MS
  return Math.min(most, Math.max(Math.min(often, first * 2 ** (tries - 1)), waitedMs / 8))
}

/** The reason why documents of a phase are due and are not claimed. */
export type Obstacle =
  /** A limit has no slot or start for them. */
  | 'limits'
  /** They may not run beside the documents that are held. */
  | 'isolation'

/** An obstacle that a claim has met, with what is known of the time after which it may be gone. */
export interface Blocked {
  readonly by: Obstacle
  /** Not before this. Default for limits: at once; for isolation: no time is known, so that the next try is left to events and looks. */
  readonly notBeforeMs?: number | undefined
  /** The longest time until the next try, unless it were before `notBeforeMs`. Default: it grows with the time waited. */
  readonly withinMs?: number | undefined
}

/** A replica's knowledge of the documents of one phase. */
export type QueueState =
  /** No document is known to be due. */
  | { readonly is: 'idle' }
  /** Some are due, or may be. */
  | { readonly is: 'due' }
  /** The last claim left more than it took. */
  | { readonly is: 'backlog' }
  /** Some are due, and the last claim of them took none. `sinceMs`: monotonic time of the first such claim in a row; `tries`: how many there were. */
  | { readonly is: 'blocked'; readonly by: Obstacle; readonly sinceMs: number; readonly tries: number }
  /** The last claim failed: other phases go first, because documents of this one may be the cause. */
  | { readonly is: 'failed' }

type Wait = Extract<QueueState, { is: 'blocked' }>

/** The result of a claim, for the queue of its phase. */
export interface ClaimReport {
  /** The number of documents that it won. */
  readonly won: number
  /** Returns their keys; called only after a ring. */
  readonly wonKeys: () => Iterable<string>
  /** True if it found no document that it could try for. */
  readonly isFruitless: boolean
  /** True if it left documents that may be claimed now. */
  readonly hasMore: boolean
  /** The time after which documents that were left to other replicas may be claimed by any. */
  readonly othersInMs?: number | undefined
  /** The obstacles that kept documents from being claimed. Default: none. */
  readonly obstacles?: readonly Blocked[] | undefined
}

/**
 * The queue of one phase on one replica: a state machine without a clock, a timer or a database of its own. Times are monotonic milliseconds.
 *
 * A queue with a ticket waits for its next claim. Tickets are numbers that only grow, so that queues are served first come, first served. Without a
 * ticket, a queue waits for an event: a look or a ring ({@link offered}), a time that has come ({@link wake}), slots or room that became free
 * ({@link freed}).
 *
 * | event                      | idle | due  | backlog | blocked | failed | its ticket
 * | -------------------------- | ---- | ---- | ------- | ------- | ------ | ----------
 * | `offered`, `freed`, `wake` | due  | due  | backlog | blocked | failed | one from now on
 * | `begins`                   | idle | idle | backlog | blocked | failed | used up
 * | `ends`, more is left       |              backlog                      | one from now on
 * | `ends`, none could be won  |              blocked                      | kept if it was offered since `begins`
 * | `ends`, all else           | due if it was offered since `begins`, else idle | kept in that case
 * | `fails`                    |              failed                       | given up
 * | `forgets`                  | idle | idle | idle    | blocked | failed | given up
 * | `clears`                   | idle | due  | backlog | idle    | failed | kept
 *
 * Invariant: a phase with due documents has a ticket, a time in {@link wakesAtMs}, an event that it waits for, or the next look.
 */
export class PhaseQueue {
  /** Its place in line for slots. */
  readonly slots = new SlotWaiter()
  /** What the claims of the phase have learnt. */
  readonly memory: PhaseMemory
  private known: QueueState = { is: 'idle' }
  private ownTicket: number | undefined
  /** The keys of documents that a ring has reported: they may not be stored yet when a claim looks for them. */
  private awaited = new Set<string>()
  /** Those of them that the claim under way should find. */
  private expected: ReadonlySet<string> = new Set()
  private readonly dueAtMs = new Set<number>()
  private nextDueMs = Number.POSITIVE_INFINITY
  private retryAtMs = Number.POSITIVE_INFINITY
  private readonly waitsFor = new Set<Obstacle>()
  private foundNone = false
  /** The next time to date documents that are left due; undefined: the last look found none. */
  private datesAtMs: number | undefined

  constructor(readonly phase: string) {
    this.memory = new PhaseMemory(phase)
  }

  get state(): QueueState {
    return this.known
  }

  /** Its place in the order of claims; undefined: there is nothing to claim now. */
  get ticket(): number | undefined {
    return this.ownTicket
  }

  /** True if its last claim found no document that it could try for. */
  get isFruitless(): boolean {
    return this.foundNone
  }

  /** The next time at which something may be due. Infinity: no such time is known. */
  get wakesAtMs(): number {
    return Math.min(this.nextDueMs, this.retryAtMs)
  }

  /** Gives the queue a ticket, unless it has one: documents are due, or may be. */
  offered(ticket: number): void {
    this.ownTicket ??= ticket
    if (this.known.is === 'idle') this.known = { is: 'due' }
  }

  /** Remembers the keys of documents that are reported to be due. */
  expects(keys: Iterable<string>): void {
    for (const key of keys) this.awaited.add(key)
  }

  /**
   * Waits for an obstacle to give way: the next claim is wanted as soon as it does. Call it before slots are requested, because the answer doesn't
   * know of later events.
   */
  waits(obstacle: Obstacle): void {
    this.waitsFor.add(obstacle)
  }

  /** Ends the wait for an obstacle: the phase has got slots. */
  waitsNoLonger(obstacle: Obstacle): void {
    this.waitsFor.delete(obstacle)
  }

  isWaitingFor(obstacle: Obstacle): boolean {
    return this.waitsFor.has(obstacle)
  }

  /** Offers the queue, once, if it waits for the slots or the room that became free. */
  freed(obstacle: Obstacle, ticket: number): void {
    if (this.waitsFor.delete(obstacle)) this.offered(ticket)
  }

  /** Begins a claim, which uses up the ticket. */
  begins(): void {
    this.ownTicket = undefined
    if (this.known.is === 'due') this.known = { is: 'idle' }
    this.expected = this.awaited
    this.awaited = new Set()
  }

  /** Ends the claim. @param ticket for the next one, if there is more to claim now */
  ends(report: ClaimReport, nowMs: number, ticket: number): void {
    const { won, hasMore, obstacles = [] } = report
    const [obstacle] = obstacles
    const isBlocked = obstacle !== undefined && won === 0
    const missed = this.hasMissed(report)
    this.foundNone = report.isFruitless
    if (hasMore) this.ownTicket ??= ticket
    else {
      if (missed && !isBlocked) this.retryIn(0, nowMs) // the claim came before they were stored
      if (report.othersInMs !== undefined) this.retryIn(report.othersInMs, nowMs)
    }
    if (isBlocked) {
      const before = this.isBlockedBy(obstacle.by) ? (this.known as Wait) : { sinceMs: nowMs, tries: 0 }
      this.known = { is: 'blocked', by: obstacle.by, sinceMs: before.sinceMs, tries: before.tries + 1 }
    } else if (hasMore) this.known = { is: 'backlog' }
    else this.known = { is: this.ownTicket === undefined ? 'idle' : 'due' }
    for (const one of obstacles) this.retryBlocked(one, nowMs)
  }

  private retryBlocked({ by, notBeforeMs = 0, withinMs }: Blocked, nowMs: number): void {
    const { sinceMs, tries } = this.isBlockedBy(by) ? (this.known as Wait) : { sinceMs: nowMs, tries: 1 }
    const againMs = by === 'limits' ? askAgainMs(nowMs - sinceMs, tries) : 0
    const inMs = Math.max(notBeforeMs, Math.min(againMs, withinMs ?? againMs))
    if (inMs > 0) this.retryIn(inMs, nowMs)
  }

  private hasMissed({ wonKeys }: ClaimReport): boolean {
    const { expected } = this
    this.expected = new Set()
    if (expected.size === 0) return false
    const won = new Set(wonKeys())
    return [...expected].some((key) => !won.has(key))
  }

  /** Records that the claim failed: the next look offers the phase again. */
  fails(): void {
    this.forgets()
    this.known = { is: 'failed' }
  }

  /** Forgets what is due: the next look offers it again. */
  forgets(): void {
    this.ownTicket = undefined
    this.awaited.clear()
    this.expected = new Set()
    if (this.known.is === 'due' || this.known.is === 'backlog') this.known = { is: 'idle' }
  }

  /** Records that a look found nothing due. True if documents had been waiting for slots until then. */
  clears(): boolean {
    const waited = this.isBlockedBy('limits')
    if (waited) {
      this.retryAtMs = Number.POSITIVE_INFINITY
      this.waitsFor.delete('limits')
      this.known = { is: this.ownTicket === undefined ? 'idle' : 'due' }
    }
    return waited
  }

  /** Takes the result of a look. True if documents have been left due for so long that they are to be dated (docs/operations.md, PhaselockDueTooLong). */
  isLeftDue(isDue: boolean, nowMs: number): boolean {
    const atMs = this.datesAtMs
    if (!isDue) this.datesAtMs = undefined
    if (!isDue || (atMs !== undefined && nowMs < atMs)) return false
    this.datesAtMs = nowMs + (atMs === undefined ? FIRST_DATED_AFTER_MS : DATED_EVERY_MS)
    return atMs !== undefined
  }

  isBlockedBy(obstacle: Obstacle): boolean {
    return this.known.is === 'blocked' && this.known.by === obstacle
  }

  /** Records that documents come due after `ms`. */
  dueIn(ms: number, nowMs: number): void {
    if (ms > HORIZON_MS) return
    const atMs = (Math.ceil((nowMs + ms) / BUCKET_MS) + 1) * BUCKET_MS
    this.dueAtMs.add(atMs)
    this.nextDueMs = Math.min(this.nextDueMs, atMs)
  }

  /** Records that another try is worthwhile after `ms`: once, at the soonest of such times, because each failed try brings the next. */
  retryIn(ms: number, nowMs: number): void {
    if (ms <= HORIZON_MS) this.retryAtMs = Math.min(this.retryAtMs, nowMs + Math.max(ms, BUCKET_MS))
  }

  /** Offers the queue if one of its times has come. True in that case. */
  wake(nowMs: number, ticket: number): boolean {
    if (this.wakesAtMs > nowMs) return false
    for (const atMs of this.dueAtMs) if (atMs <= nowMs) this.dueAtMs.delete(atMs)
    this.nextDueMs = Math.min(...this.dueAtMs, Number.POSITIVE_INFINITY)
    if (this.retryAtMs <= nowMs) this.retryAtMs = Number.POSITIVE_INFINITY
    this.offered(ticket)
    return true
  }
}
