import { oneOf, type Random, randomOf, wholeBetween } from './random.ts'

/** What can go wrong; the report's `faults` uses the same names. */
export const FAULT_KINDS = [
  'badDocument',
  'handlerThrows',
  'handlerAlwaysThrows',
  'handlerReturnsNothing',
  'handlerHangs',
  'handlerIgnoresSignal',
  'handlerBlocksLoop',
  'replicaKilled',
  'replicaPaused',
  'replicaTerminated',
  'databaseKilled',
  'databaseBlackholed',
  'databaseSlow',
  'databaseNotPrimary',
  'lockTimeoutChanged',
  'ownerEdits',
  'ownerWakes',
  'ownerDeletes',
] as const

export type FaultKind = (typeof FAULT_KINDS)[number]

export interface PlannedFault {
  readonly kind: FaultKind
  /** From the start of the faults. */
  readonly atMs: number
  /** How long it lasts, if it lasts. */
  readonly forMs: number
  /** From 0 to 1: selects one of the things that it may hit. */
  readonly which: number
}

/** One at a time of these, with time to recover in between: otherwise all would be one long outage. */
const EXCLUSIVE: Partial<Record<FaultKind, { group: string; leastMs: number; mostMs: number; restMs: number }>> = {
  databaseKilled: { group: 'database', leastMs: 3_000, mostMs: 3_000, restMs: 5_000 },
  databaseBlackholed: { group: 'database', leastMs: 1_000, mostMs: 8_000, restMs: 5_000 },
  databaseSlow: { group: 'database', leastMs: 2_000, mostMs: 6_000, restMs: 3_000 },
  databaseNotPrimary: { group: 'database', leastMs: 1_000, mostMs: 4_000, restMs: 4_000 },
  replicaPaused: { group: 'pause', leastMs: 9_000, mostMs: 14_000, restMs: 2_000 },
  handlerBlocksLoop: { group: 'block', leastMs: 0, mostMs: 0, restMs: 10_000 },
  handlerIgnoresSignal: { group: 'places', leastMs: 0, mostMs: 0, restMs: 4_000 },
}

/** One fault a second. The same seed and length give the same plan. */
export function planFaults(seed: number, seconds: number): PlannedFault[] {
  const random = randomOf(seed)
  const freeFrom = new Map<string, number>()
  const planned: PlannedFault[] = []
  // The first round strikes each kind once, as far as time allows: a short run shows as many kinds as it can.
  let unseen = shuffled(random, FAULT_KINDS)
  for (let atMs = 1_000; atMs <= seconds * 1_000; atMs += 1_000) {
    const possible = (kind: FaultKind) => (freeFrom.get(EXCLUSIVE[kind]?.group ?? '') ?? 0) <= atMs
    const kind = unseen.find(possible) ?? oneOf(random, FAULT_KINDS.filter(possible))!
    unseen = unseen.filter((other) => other !== kind)
    const lasting = EXCLUSIVE[kind]
    const forMs = lasting ? wholeBetween(random, lasting.leastMs, lasting.mostMs) : 0
    if (lasting) freeFrom.set(lasting.group, atMs + forMs + lasting.restMs)
    planned.push({ kind, atMs, forMs, which: random() })
  }
  return planned
}

function shuffled<T>(random: Random, all: readonly T[]): T[] {
  return all
    .map((one) => ({ one, order: random() }))
    .sort((a, b) => a.order - b.order)
    .map(({ one }) => one)
}
