import { idKey, PhaseMemory, WorkSplit } from '../../../src/lock/index.js'
import type { Clock } from '../../../src/time/index.js'
import type { Machine, Move } from '../explore.js'

/** The bound of point 2 of docs/lock-protocol.md. */
const BOUND_MS = 5_000
const PHASE = 'Working'
const PLACES = 2
/** A replica ticks once a second at least; it may look sooner. */
const ROUNDS_MS = [500, 1_000]
const SELF = 'api-1~a'
const REPLICAS = [SELF, 'api-2~b']

/** Two replicas; one of them lives and may take nothing. All documents are due at the start; times are since then. */
export interface SharingWorld {
  readonly ms: number
  /** What this replica knows of what falls to the other one. */
  readonly share: WorkSplit
  readonly memory: PhaseMemory
  /** Due documents, the longest untouched first. */
  readonly due: readonly string[]
  readonly running: readonly string[]
}

/**
 * One replica with room goes round documents of its own that never end, as `WorkSplit` tells it to. Which of its steps end in a round is
 * anybody's choice, as long as it has room in each; whether the other replica takes one of its own as well.
 */
export class SharingMachine implements Machine<SharingWorld> {
  private nowMs = 0
  private readonly own: ReadonlySet<string>
  readonly initial: readonly SharingWorld[]

  /** @param passes whether time passes for `WorkSplit`: else its preference never ends */
  constructor(private readonly passes = true) {
    const share = new WorkSplit(() => ({ self: SELF, replicas: REPLICAS }), this.clock)
    const ids = Array.from({ length: 40 }, (_, n) => `d${n}`)
    const [own, others] = [ids.filter((id) => share.isOwn(idKey(id))), ids.filter((id) => !share.isOwn(idKey(id)))]
    this.own = new Set(own.slice(0, 4))
    this.initial = [
      { ms: 0, share, memory: new PhaseMemory(PHASE), due: [...this.own, ...others.slice(0, 2)], running: [] },
    ]
  }

  private get clock(): Clock {
    return { now: () => new Date(0), monotonicMs: () => (this.passes ? this.nowMs : 0) }
  }

  keyOf({ ms, share, memory, due, running }: SharingWorld): string {
    return JSON.stringify([ms, due, running, share, memory], (_key, value) =>
      value instanceof Map ? [...value] : value,
    )
  }

  *moves(world: SharingWorld): Generator<Move<SharingWorld>> {
    if (world.ms > BOUND_MS + 1_000) return
    for (const ended of choicesOf(world.running)) {
      const running = world.running.filter((id) => !ended.includes(id))
      if (running.length === PLACES) continue // no room
      const due = [...world.due, ...ended]
      for (const taken of [undefined, due.find((id) => !this.own.has(id))]) {
        const left = due.filter((id) => id !== taken)
        for (const tookMs of ROUNDS_MS) yield this.round({ ...world, ms: world.ms + tookMs, due: left, running })
      }
    }
  }

  /** Claims what has its turn. */
  private round(world: SharingWorld): Move<SharingWorld> {
    this.nowMs = world.ms
    const [share, memory] = [copyOf(world.share), copyOf(world.memory)]
    const places = PLACES - world.running.length
    const released = world.due.map((_id) => ({ _id }))
    const candidates = { lists: [{ least: 0, documents: released }], retries: [] }
    const claimed = share
      .choose(memory, candidates, places)
      .lists.flatMap(({ documents }) => documents)
      .map(({ _id }) => String(_id))
      .slice(0, places)
    const late = world.due.some((id) => !this.own.has(id) && !claimed.includes(id)) && world.ms > BOUND_MS
    const to: SharingWorld = {
      ...world,
      share,
      memory,
      due: world.due.filter((id) => !claimed.includes(id)),
      running: [...world.running, ...claimed.filter((id) => this.own.has(id))].sort(),
    }
    return { action: `${world.ms} ms: ${claimed.join()}`, to, broken: late ? ['I11'] : [] }
  }
}

/** All that may be chosen of these. */
function choicesOf(ids: readonly string[]): string[][] {
  const [first, ...rest] = ids
  if (first === undefined) return [[]]
  return choicesOf(rest).flatMap((choice) => [choice, [first, ...choice]])
}

/** With all that it has seen, and nothing in common with the first. */
function copyOf<T>(value: T): T {
  if (value instanceof Map) return new Map([...value].map(([key, one]) => [key, copyOf(one)])) as T
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  const copy = Object.create(Object.getPrototypeOf(value)) as Record<string, unknown>
  for (const [key, one] of Object.entries(value)) copy[key] = key === 'clock' ? one : copyOf(one)
  return copy as T
}
