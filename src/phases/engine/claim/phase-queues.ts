import type { Clock } from '../../../time/index.js'
import { type Obstacle, PhaseQueue } from './phase-queue.js'

export interface PhaseQueuesOptions {
  readonly clock: Clock
  /** True if no document of a phase may be claimed at present. After it is resumed, a look offers it again. */
  readonly isPaused: (phase: string) => boolean
  /** Called when queues are offered by themselves: a time has come, or slots or room that they wait for became free. */
  readonly onOffered: () => void
}

/** The queues of a lifecycle's phases on one replica: the order of their claims, and the one timer that wakes them. */
export class PhaseQueues {
  private readonly byPhase: ReadonlyMap<string, PhaseQueue>
  private readonly all: readonly PhaseQueue[]
  private tickets = 0
  private timer: NodeJS.Timeout | undefined
  private timerAtMs = Number.POSITIVE_INFINITY
  private stopped = false

  constructor(
    phases: Iterable<string>,
    private readonly options: PhaseQueuesOptions,
  ) {
    this.all = [...phases].map((phase) => new PhaseQueue(phase))
    this.byPhase = new Map(this.all.map((queue) => [queue.phase, queue]))
  }

  of(phase: string): PhaseQueue | undefined {
    return this.byPhase.get(phase)
  }

  /** True if documents are known to be due that no replica has claimed yet. */
  get areDue(): boolean {
    return this.all.some(({ ticket, phase }) => ticket !== undefined && !this.options.isPaused(phase))
  }

  /** True if the last claim of a phase left more than it took. */
  get haveBacklog(): boolean {
    return this.all.some(({ state }) => state.is === 'backlog')
  }

  nextTicket(): number {
    this.tickets += 1
    return this.tickets
  }

  offer(phases: Iterable<string>): void {
    if (this.stopped) return
    for (const phase of phases) if (!this.options.isPaused(phase)) this.byPhase.get(phase)?.offered(this.nextTicket())
  }

  /** Offers the phases whose last claim failed. */
  offerFailed(): void {
    this.offer(this.all.filter(({ state }) => state.is === 'failed').map(({ phase }) => phase))
  }

  /** The queue with the lowest ticket among those with room; one whose last claim failed only if there is no other. */
  next(hasRoom: (phase: string) => boolean): PhaseQueue | undefined {
    let next: PhaseQueue | undefined
    if (this.stopped) return undefined
    for (const queue of this.all) {
      if (queue.ticket === undefined || (next && !isBefore(queue, next)) || !hasRoom(queue.phase)) continue
      next = queue
    }
    return next
  }

  /** Offers the queues that wait for slots or room, now that some became free. */
  freed(obstacle: Obstacle, isMeant: (queue: PhaseQueue) => boolean): void {
    if (this.stopped) return
    const waiting = this.all.filter((queue) => queue.isWaitingFor(obstacle) && isMeant(queue))
    for (const queue of waiting) {
      queue.freed(obstacle, this.nextTicket())
      if (this.options.isPaused(queue.phase)) queue.forgets()
    }
    if (waiting.length > 0) this.options.onOffered()
  }

  /** Takes the result of a look, which found due documents in these phases only. @returns the queues of other phases that waited for slots until then */
  found(due: ReadonlySet<string>): PhaseQueue[] {
    return this.all.filter((queue) => !due.has(queue.phase) && queue.clears())
  }

  /** Takes the result of a look, as {@link PhaseQueue.isLeftDue}. @returns the phases whose due documents are to be dated */
  leftDue(due: ReadonlySet<string>): string[] {
    const now = this.options.clock.monotonicMs()
    return this.all.filter((queue) => queue.isLeftDue(due.has(queue.phase), now)).map(({ phase }) => phase)
  }

  /** Forgets what is due: the next look offers it again. */
  forget(): void {
    for (const queue of this.all) queue.forgets()
  }

  /**
   * Sets the timer for the next time of any queue, so that a wait that ends in 0.1 s is resumed in 0.1 s and not at the next full second. Call it
   * when a queue may have an earlier one. Only a hint: the next tick finds what it misses, and the server's clock judges what is due.
   */
  setTimer(): void {
    const atMs = Math.min(...this.all.map((queue) => queue.wakesAtMs), Number.POSITIVE_INFINITY)
    if (this.stopped || atMs >= this.timerAtMs) return
    clearTimeout(this.timer)
    this.timerAtMs = atMs
    // Its time may have passed already: Node warns of negative delays.
    this.timer = setTimeout(() => this.wake(), Math.max(0, atMs - this.options.clock.monotonicMs())).unref()
  }

  private wake(): void {
    this.timerAtMs = Number.POSITIVE_INFINITY
    const now = this.options.clock.monotonicMs()
    for (const queue of this.all)
      if (queue.wake(now, this.nextTicket()) && this.options.isPaused(queue.phase)) queue.forgets()
    this.setTimer()
    this.options.onOffered()
  }

  stop(): void {
    this.stopped = true
    clearTimeout(this.timer)
    this.forget()
  }
}

function isBefore(one: PhaseQueue, other: PhaseQueue): boolean {
  const [oneFailed, otherFailed] = [one.state.is === 'failed', other.state.is === 'failed']
  return oneFailed === otherFailed ? one.ticket! < other.ticket! : otherFailed
}
