import type { LedgerEntry } from '../proof/ledger.ts'
import { DATABASE_FAULT_KINDS, type FaultKind } from './plan.ts'

/** A fault that struck, by the clock of this machine. */
export interface Struck {
  readonly kind: FaultKind
  readonly fromMs: number
  readonly toMs: number
}

export type StandStills = Readonly<
  Partial<Record<FaultKind, { count: number; p50: number; p95: number; most: number }>>
>

/** A primary is elected within this time after a fault is over. */
const AFTERWARDS_MS = 15_000

/**
 * The longest time without a step that began, in milliseconds, from when a fault of the database struck until 15 s after it was over, until
 * the next one, or until the last step of all.
 */
export function standStills(struck: readonly Struck[], entries: readonly LedgerEntry[]): StandStills {
  const begins = entries
    .filter(({ kind }) => kind === 'begin')
    .map(({ at }) => at.getTime())
    .sort((a, b) => a - b)
  const ofDatabase = struck.filter(({ kind }) => DATABASE_FAULT_KINDS.has(kind))
  const longest = ({ fromMs, toMs }: Struck) => {
    const next = ofDatabase.map((other) => other.fromMs).filter((at) => at > fromMs)
    const last = begins.at(-1) ?? fromMs
    const untilMs = Math.min(toMs + AFTERWARDS_MS, ...next, ...(last > fromMs ? [last] : []))
    const times = [fromMs, ...begins.filter((at) => at > fromMs && at < untilMs), untilMs]
    return Math.max(...times.slice(1).map((at, i) => at - times[i]!))
  }
  const byKind = Map.groupBy(ofDatabase, ({ kind }) => kind)
  return Object.fromEntries(
    [...byKind].map(([kind, those]) => {
      const sorted = those.map(longest).sort((a, b) => a - b)
      const percentile = (part: number) => sorted[Math.ceil(sorted.length * part) - 1]!
      return [kind, { count: sorted.length, p50: percentile(0.5), p95: percentile(0.95), most: sorted.at(-1)! }]
    }),
  )
}
