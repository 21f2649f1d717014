import { oneOf, type Random, randomOf, wholeBetween } from './random.ts'

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
  'workPaused',
  'limitLowered',
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
/** Those that strike one after the other. */
export const ROUND_KINDS: ReadonlySet<FaultKind> = new Set(REPLICA_SET)
/** What strikes the database; how soon work goes on after it is measured. */
export const DATABASE_FAULT_KINDS: ReadonlySet<FaultKind> = new Set([...DATABASE, ...REPLICA_SET])

export interface Fault {
  readonly kind: FaultKind
  /** How long it lasts, if it lasts. */
  readonly forMs: number
  /** From 0 to 1: selects one of the things that it may hit. */
  readonly which: number
}

export interface PlannedFault extends Fault {
  /** From the start of the faults. */
  readonly atMs: number
}

/** How long a fault of the set lasts, if it may last longer or shorter. */
const LASTS: Partial<Record<FaultKind, readonly [leastMs: number, mostMs: number]>> = {
  primaryKilled: [1_000, 6_000],
  primaryPaused: [4_000, 9_000],
  primaryPartitioned: [3_000, 9_000],
  primaryDiskFull: [1_000, 6_000],
  majorityKilled: [2_000, 6_000],
  secondarySlow: [4_000, 9_000],
}

/** One at a time of these, with time to recover in between: otherwise all would be one long outage. */
const EXCLUSIVE: Partial<Record<FaultKind, { group: string; leastMs: number; mostMs: number; restMs: number }>> = {
  databaseKilled: { group: 'database', leastMs: 3_000, mostMs: 3_000, restMs: 5_000 },
  databaseBlackholed: { group: 'database', leastMs: 1_000, mostMs: 8_000, restMs: 5_000 },
  databaseSlow: { group: 'database', leastMs: 2_000, mostMs: 6_000, restMs: 3_000 },
  databaseNotPrimary: { group: 'database', leastMs: 1_000, mostMs: 4_000, restMs: 4_000 },
  replicaPaused: { group: 'pause', leastMs: 9_000, mostMs: 14_000, restMs: 2_000 },
  workPaused: { group: 'people', leastMs: 500, mostMs: 2_500, restMs: 3_000 },
  limitLowered: { group: 'people', leastMs: 500, mostMs: 2_500, restMs: 3_000 },
  handlerBlocksLoop: { group: 'block', leastMs: 0, mostMs: 0, restMs: 10_000 },
  handlerIgnoresSignal: { group: 'places', leastMs: 0, mostMs: 0, restMs: 4_000 },
}

/**
 * Faults of a replica set, which strike one after the other, as soon as the set is whole again: always one of those that had the fewest rounds so far. The
 * same seed gives the same order.
 */
export class Rounds {
  private readonly had: Map<FaultKind, number>
  private readonly random: Random

  constructor(seed: number, kinds: readonly FaultKind[]) {
    this.had = new Map(kinds.map((kind) => [kind, 0]))
    this.random = randomOf(seed)
  }

  /** How many each has had at least; none: Infinity. */
  get fewest(): number {
    return Math.min(...this.had.values())
  }

  next(): Fault | undefined {
    const { fewest, random } = this
    const kind = oneOf(
      random,
      [...this.had.keys()].filter((one) => this.had.get(one) === fewest),
    )
    if (!kind) return undefined
    this.had.set(kind, fewest + 1)
    return { kind, forMs: wholeBetween(random, ...(LASTS[kind] ?? [0, 0])), which: random() }
  }
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
