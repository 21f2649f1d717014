import type { Document } from 'mongodb'

/*
 * The sums of what replicas have recorded: how many documents went from which phase to which, by which outcome, for which causes, and how long they
 * were in the phase that they left. Sums add up: of lifecycles, of replicas, of minutes.
 */

/** A number of ends of steps that are alike. */
export interface FlowMove {
  readonly from: string
  /** The same as `from` unless it moved; of removals {@link REMOVED}. */
  readonly to: string
  /** One of `RECORDED_OUTCOMES`, or {@link OTHER}. */
  readonly outcome: string
  readonly n: number
}

/** A number of recorded errors, or of parks, of one cause. */
export interface FlowCause {
  readonly cause: string
  readonly kind: 'error' | 'park'
  /** The message without its values. */
  readonly text: string
  readonly n: number
  /** The versions of the app that recorded them, at most {@link MOST_VERSIONS}; `?`: it doesn't say. */
  readonly versions: readonly string[]
}

/** The times that documents were in a phase which they left, as numbers by powers of two: `n[i]` of 2^(low + i) ms up to twice that. */
export interface FlowTimes {
  readonly phase: string
  readonly low: number
  readonly n: readonly number[]
}

export interface FlowSums {
  readonly moves: readonly FlowMove[]
  readonly causes: readonly FlowCause[]
  readonly times: readonly FlowTimes[]
}

/** What one replica has recorded within a minute that is over: it never changes. */
export interface FlowMinute {
  /** Its number among those of this start of the replica. */
  readonly seq: number
  /** The begin of the minute, by the server's clock. */
  readonly at: Date
  readonly lifecycles: readonly ({ readonly name: string } & FlowSums)[]
}

/** The most different moves, and the most causes, of one lifecycle in one minute or hour: more are summed as {@link OTHER}. */
export const MOST_ROWS = 200
export const MOST_VERSIONS = 10
/** The minutes that stay in a replica's document: enough for several runs of the duty that copies them. */
export const MINUTES_IN_BEAT = 12
/** Stands for what there was no row for. */
export const OTHER = 'other'
/** Where removed documents go. */
export const REMOVED = 'removed'
/** 2^47 ms are 4,000 years. */
const MOST_POWERS = 48

/** The power of two below a time. */
export const powerOf = (ms: number): number => (ms < 1 ? 0 : Math.min(Math.floor(Math.log2(ms)), MOST_POWERS - 1))

/** Adds sums up, each row once. */
export function addUp(all: readonly FlowSums[]): FlowSums {
  const moves = new Map<string, FlowMove>()
  const causes = new Map<string, FlowCause>()
  const times = new Map<string, number[]>()
  for (const sums of all) {
    for (const move of sums.moves) {
      const key = [move.from, move.to, move.outcome].join('\0')
      const row =
        moves.has(key) || moves.size < MOST_ROWS ? move : { from: OTHER, to: OTHER, outcome: OTHER, n: move.n }
      const at = row === move ? key : OTHER
      moves.set(at, { ...row, n: row.n + (moves.get(at)?.n ?? 0) })
    }
    for (const one of sums.causes) {
      const key = `${one.kind}\0${one.cause}`
      const isKept = causes.has(key) || causes.size < MOST_ROWS
      const row = isKept ? one : { ...one, cause: OTHER, text: 'other causes' }
      const at = isKept ? key : `${one.kind}\0${OTHER}`
      const before = causes.get(at)
      const versions = [...new Set([...(before?.versions ?? []), ...row.versions])].slice(0, MOST_VERSIONS)
      causes.set(at, { ...(before ?? row), n: row.n + (before?.n ?? 0), versions })
    }
    for (const { phase, low, n } of sums.times) {
      if (!times.has(phase) && times.size >= MOST_ROWS) continue // a lifecycle has fewer phases
      const counts = times.get(phase) ?? []
      times.set(phase, counts)
      for (const [i, count] of n.entries()) counts[low + i] = (counts[low + i] ?? 0) + count
    }
  }
  return {
    moves: [...moves.values()],
    causes: [...causes.values()],
    times: [...times].map(([phase, n]) => timesOf(phase, n)),
  }
}

/** The powers that have any, from the first to the last. */
export function timesOf(phase: string, counts: readonly (number | undefined)[]): FlowTimes {
  const low = counts.findIndex((count) => count)
  return { phase, low: Math.max(low, 0), n: low < 0 ? [] : Array.from(counts.slice(low), (count) => count ?? 0) }
}

/** Reads stored sums. A person may have put anything there: other values count as absent. */
export function flowSumsIn(stored: unknown): FlowSums {
  const { moves, causes, times } = Object(stored) as Document
  return {
    moves: listIn(moves).flatMap(({ from, to, outcome, n }) =>
      isText(from) && isText(to) && isText(outcome) && isCount(n) ? [{ from, to, outcome, n }] : [],
    ),
    causes: listIn(causes).flatMap(({ cause, kind, text, n, versions }) =>
      isText(cause) && isText(text) && isCount(n)
        ? [{ cause, kind: kind === 'park' ? 'park' : 'error', text, n, versions: textsIn(versions) } as const]
        : [],
    ),
    times: listIn(times).flatMap(({ phase, low, n }) =>
      isText(phase) &&
      isCount(low) &&
      low < MOST_POWERS &&
      Array.isArray(n) &&
      n.length <= MOST_POWERS &&
      n.every(isCount)
        ? [{ phase, low, n }]
        : [],
    ),
  }
}

/** Reads the minutes in a replica's document. */
export function flowMinutesIn(stored: unknown): FlowMinute[] {
  return listIn(stored).flatMap(({ seq, at, lifecycles }) =>
    isCount(seq) && at instanceof Date && !Number.isNaN(at.getTime())
      ? [
          {
            seq,
            at,
            lifecycles: listIn(lifecycles).flatMap((one) =>
              isText(one['name']) ? [{ name: one['name'], ...flowSumsIn(one) }] : [],
            ),
          },
        ]
      : [],
  )
}

const isText = (value: unknown): value is string => typeof value === 'string'
const isCount = (value: unknown): value is number => typeof value === 'number' && value >= 0 && Number.isFinite(value)
const listIn = (value: unknown): Document[] =>
  Array.isArray(value) ? value.filter((one) => typeof one === 'object' && one !== null) : []
const textsIn = (value: unknown): string[] => (Array.isArray(value) ? value.filter(isText).slice(0, MOST_VERSIONS) : [])
