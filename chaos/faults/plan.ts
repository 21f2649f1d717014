import { oneOf, randomOf, wholeBetween } from './random.ts'

/** What can go wrong with documents, handlers and replicas; the report's `faults` uses the same names. */
const ON_ANY_DATABASE = [
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
  'lockTimeoutChanged',
  'ownerEdits',
  'ownerWakes',
  'ownerDeletes',
] as const

/** And with a local database of one server. */
const DATABASE = ['databaseKilled', 'databaseBlackholed', 'databaseSlow', 'databaseNotPrimary'] as const

/** And with a replica set of three: see chaos/replica-set. */
const REPLICA_SET = [
  'primaryStepsDown',
  'primaryKilled',
  'primaryPaused',
  'primaryPartitioned',
  'primaryDiskFull',
  'majorityKilled',
  'secondarySlow',
  'secondaryResynced',
  'membersRestarted',
] as const

export type FaultKind = (typeof ON_ANY_DATABASE)[number] | (typeof DATABASE)[number] | (typeof REPLICA_SET)[number]

export const FAULT_KINDS: readonly FaultKind[] = [...ON_ANY_DATABASE, ...DATABASE]
export const REPLICA_SET_FAULT_KINDS: readonly FaultKind[] = [...ON_ANY_DATABASE, ...REPLICA_SET]
/** What strikes the database; how soon work goes on after it is measured. */
export const DATABASE_FAULT_KINDS: ReadonlySet<FaultKind> = new Set([...DATABASE, ...REPLICA_SET])

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
  primaryStepsDown: { group: 'database', leastMs: 3_000, mostMs: 3_000, restMs: 5_000 },
  primaryKilled: { group: 'database', leastMs: 1_000, mostMs: 6_000, restMs: 8_000 },
  primaryPaused: { group: 'database', leastMs: 4_000, mostMs: 9_000, restMs: 8_000 },
  primaryPartitioned: { group: 'database', leastMs: 3_000, mostMs: 9_000, restMs: 8_000 },
  primaryDiskFull: { group: 'database', leastMs: 1_000, mostMs: 6_000, restMs: 10_000 },
  majorityKilled: { group: 'database', leastMs: 2_000, mostMs: 6_000, restMs: 10_000 },
  secondarySlow: { group: 'database', leastMs: 4_000, mostMs: 9_000, restMs: 2_000 },
  secondaryResynced: { group: 'database', leastMs: 5_000, mostMs: 5_000, restMs: 5_000 },
  membersRestarted: { group: 'database', leastMs: 20_000, mostMs: 20_000, restMs: 5_000 },
  replicaPaused: { group: 'pause', leastMs: 9_000, mostMs: 14_000, restMs: 2_000 },
  handlerBlocksLoop: { group: 'block', leastMs: 0, mostMs: 0, restMs: 10_000 },
  handlerIgnoresSignal: { group: 'places', leastMs: 0, mostMs: 0, restMs: 4_000 },
}

/**
 * One fault a second: of those that may strike, one of those planned least so far, so that all have as many rounds as time allows, and a short
 * run as many kinds as it can. The same seed, length and kinds give the same plan.
 */
export function planFaults(seed: number, seconds: number, kinds = FAULT_KINDS): PlannedFault[] {
  const random = randomOf(seed)
  const freeFrom = new Map<string, number>()
  const rounds = new Map(kinds.map((kind) => [kind, 0]))
  const planned: PlannedFault[] = []
  for (let atMs = 1_000; atMs <= seconds * 1_000; atMs += 1_000) {
    const possible = kinds.filter((kind) => (freeFrom.get(EXCLUSIVE[kind]?.group ?? '') ?? 0) <= atMs)
    const fewest = Math.min(...possible.map((kind) => rounds.get(kind)!))
    const kind = oneOf(
      random,
      possible.filter((one) => rounds.get(one) === fewest),
    )
    if (!kind) continue
    rounds.set(kind, fewest + 1)
    const lasting = EXCLUSIVE[kind]
    const forMs = lasting ? wholeBetween(random, lasting.leastMs, lasting.mostMs) : 0
    if (lasting) freeFrom.set(lasting.group, atMs + forMs + lasting.restMs)
    planned.push({ kind, atMs, forMs, which: random() })
  }
  return planned
}
