import type { Figures } from './figures.js'
import { type Judgement, judge, slowness } from './judgement.js'
import { LEAST_HIT } from './scenario.js'

/** A recovery may take this long beyond the lock timeout: a tick, and the time until a place is free. */
const RECOVERY_SLACK_S = 2
const HANDOVER_S = 1
const LEAST_LONG_STEPS = 5

/**
 * What a protection is there for. Without one the faults may not come about as planned, and not all may be done in the time
 * that is given, so only these are judged then.
 */
const SAFETY: readonly string[] = ['repeated', 'overlapping']

/** What `--json` prints. */
export interface DemoResult extends Omit<Figures, 'examples'>, Judgement {
  readonly documents: number
  /** Outcomes that came late, counted by the replicas themselves: their writes matched nothing. */
  readonly refusedLateWrites: number
  /** Those of them that were not the paused replica's. */
  readonly refusedLateWritesOfOthers: number
  readonly lockTimeoutSeconds: number
  readonly seconds: number
  /** The protection that was turned off with --break. */
  readonly broken: string | null
}

type Measured = Omit<DemoResult, keyof Judgement>

/** What the figures say. Turned-off protections are judged by what they are there for alone, however slow the machine is. */
export function judgeDemo(result: Measured, least: { documents: number }, slow: number = slowness()): Judgement {
  const missing = result.stepsBegun === 0 ? ['expected steps to begin, got none'] : []
  return judge(whatIsOff(result, least), { safety: SAFETY, missing, slowness: slow })
}

/** The figures that are not as they must be. */
function whatIsOff(result: Measured, least: { documents: number }): string[] {
  const none = { expected: '0', holds: (value: number | null) => value === 0 }
  const atLeast = (n: number) => ({
    expected: `>= ${n}`,
    holds: (value: number | null) => value !== null && value >= n,
  })
  const atMost = (n: number) => ({ expected: `<= ${n}`, holds: (value: number | null) => value !== null && value <= n })
  const demands = {
    documents: atLeast(least.documents),
    lost: none,
    repeated: none,
    overlapping: none,
    refusedLateWrites: atLeast(1),
    refusedLateWritesOfOthers: none,
    recoverySeconds: atMost(result.lockTimeoutSeconds + RECOVERY_SLACK_S),
    handoverSeconds: atMost(HANDOVER_S),
    stepsLongerThanLockTimeout: atLeast(LEAST_LONG_STEPS),
    leasesAtKill: atLeast(LEAST_HIT),
    notBegunAtTerminate: atLeast(LEAST_HIT),
    leasesAtPause: atLeast(LEAST_HIT),
  }
  return Object.entries(demands)
    .filter(([figure]) => result.broken === null || SAFETY.includes(figure))
    .filter(([figure, { holds }]) => !holds(result[figure as keyof typeof demands]))
    .map(([figure, { expected }]) => {
      const value = result[figure as keyof typeof demands]
      return `${figure}: expected ${expected}, got ${value === null ? 'none: it never happened' : value}`
    })
}
