import {
  beginOf,
  type EndKind,
  type FlowCause,
  type FlowMinute,
  MINUTES_IN_BEAT,
  MOST_ROWS,
  OTHER,
  powerOf,
  type RecordedOutcome,
  timesOf,
} from '../../../lock/index.js'
import { causeOfError } from '../../errors/cause.js'

interface Move {
  readonly from: string
  readonly to: string
  readonly outcome: string
  n: number
}

type Cause = { -readonly [field in keyof FlowCause]: FlowCause[field] }

/** The most rows of all lifecycles of a replica in one minute: its beat carries several minutes. */
const MOST_OF_ALL = 1_000

const COPIED_AFTER_MS = MINUTES_IN_BEAT * 60_000

/** The rows that a replica may still begin in this minute. */
interface Room {
  left: number
}

/** What a replica records of one lifecycle in the current minute. A step that is like an earlier one costs two look-ups and an addition. */
export class LifecycleFlow {
  private moves = new Map<string, Map<string, Move>>()
  private causes = new Map<string, Cause>()
  private times = new Map<string, number[]>()
  private rows = 0
  isEmpty = true

  constructor(
    readonly name: string,
    private readonly room: Room,
  ) {}

  /** @param inPhaseMs for a document that has left its phase: the time that it was there; undefined: unknown */
  moved(from: string, to: string, outcome: RecordedOutcome, n = 1, inPhaseMs?: number): void {
    this.isEmpty = false
    // Most steps stay in their phase: their key is the outcome itself.
    const key = to === from ? outcome : `${outcome}\0${to}`
    const move = this.moves.get(from)?.get(key)
    if (move) move.n += n
    else this.addMove(from, to, outcome, n, key)
    if (inPhaseMs !== undefined && inPhaseMs >= 0) this.took(from, inPhaseMs)
  }

  /** Counts the cause of an error or a park. */
  caused(end: Extract<EndKind, { kind: 'error' | 'park' }>, id: unknown): void {
    const { error, kind } = end
    const cause = error?.cause ?? (end.kind === 'park' ? end.cause : undefined)
    if (cause === undefined) return
    const known = this.causes.get(`${kind}${cause}`)
    if (known) known.n += 1
    else if (this.hasRoom(this.causes.size)) {
      const { text } = causeOfError(error ?? { message: end.kind === 'park' ? end.reason : '' }, id)
      this.causes.set(`${kind}${cause}`, { cause, kind, text, n: 1, versions: [] })
    } else {
      const other = this.causes.get(`${kind}${OTHER}`)
      if (other) other.n += 1
      else this.causes.set(`${kind}${OTHER}`, { cause: OTHER, kind, text: 'other causes', n: 1, versions: [] })
    }
  }

  take(): FlowMinute['lifecycles'][number] {
    const moves = [...this.moves.values()].flatMap((of) => [...of.values()])
    const times = [...this.times].map(([phase, counts]) => timesOf(phase, counts))
    const sums = { name: this.name, moves, causes: [...this.causes.values()], times }
    this.moves = new Map()
    this.causes = new Map()
    this.times = new Map()
    this.rows = 0
    this.isEmpty = true
    return sums
  }

  private addMove(from: string, to: string, outcome: string, n: number, key: string): void {
    if (from !== OTHER && !this.hasRoom(this.rows)) {
      const other = this.moves.get(OTHER)?.get(OTHER)
      if (other) other.n += n
      else this.addMove(OTHER, OTHER, OTHER, n, OTHER)
      return
    }
    this.rows += 1
    const of = this.moves.get(from) ?? new Map<string, Move>()
    this.moves.set(from, of.set(key, { from, to, outcome, n }))
  }

  private hasRoom(rows: number): boolean {
    if (rows >= MOST_ROWS || this.room.left <= 0) return false
    this.room.left -= 1
    return true
  }

  private took(phase: string, ms: number): void {
    const counts = this.times.get(phase) ?? []
    if (counts.length === 0) this.times.set(phase, counts)
    const power = powerOf(ms)
    counts[power] = (counts[power] ?? 0) + 1
  }
}

/**
 * What a replica has recorded, by minutes of the server's clock. Minutes that are over go with the next beat, and a few stay until a duty has surely
 * copied them. A replica that is killed loses the minutes that no beat has carried: the current one, and at most the one before.
 */
export class FlowCounter {
  private readonly lifecycles = new Map<string, LifecycleFlow>()
  private readonly room: Room = { left: MOST_OF_ALL }
  private at: Date | undefined
  private seq = 0
  private closed: { readonly minute: FlowMinute; sentAt?: Date }[] = []

  constructor(private readonly serverNow: () => Date) {}

  of(lifecycle: string): LifecycleFlow {
    const flow = this.lifecycles.get(lifecycle) ?? new LifecycleFlow(lifecycle, this.room)
    this.lifecycles.set(lifecycle, flow)
    return flow
  }

  /** Closes the current minute if it is over. Called at each tick. */
  turn(): void {
    const now = beginOf('minute', this.serverNow())
    if (this.at?.getTime() === now.getTime()) return
    this.close()
    this.at = now
    // By then the duty has copied what was sent. What was not sent stays, because an outage may last: it has a bound by number.
    this.closed = this.closed.filter(({ sentAt }) => !sentAt || now.getTime() - sentAt.getTime() <= COPIED_AFTER_MS)
  }

  /** The minutes that no beat has carried. */
  unsent(): FlowMinute[] {
    return this.closed.flatMap(({ minute, sentAt }) => (sentAt ? [] : [minute]))
  }

  sent(minutes: readonly FlowMinute[]): void {
    for (const one of this.closed) if (minutes.includes(one.minute)) one.sentAt = this.serverNow()
  }

  /** True if something was sent that may not have been copied. */
  get isRecent(): boolean {
    return this.closed.some(({ sentAt }) => sentAt)
  }

  /** All that may not have been copied, the current minute included: for a replica that stops. */
  last(): FlowMinute[] {
    this.close()
    return this.closed.map(({ minute }) => minute)
  }

  private close(): void {
    const some = [...this.lifecycles.values()].filter(({ isEmpty }) => !isEmpty)
    if (some.length === 0) return
    this.seq += 1
    const at = this.at ?? beginOf('minute', this.serverNow())
    const minute = { seq: this.seq, at, lifecycles: some.map((one) => one.take()) }
    this.room.left = MOST_OF_ALL
    this.closed = [...this.closed, { minute }].slice(-MINUTES_IN_BEAT)
  }
}
