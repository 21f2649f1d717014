import type { Figures } from './figures.ts'
import { figureLines, type Judgement, judge, slowness, verdictText } from './judgement.ts'
import { LEAST_HIT } from './scenario.ts'

/** The time that a recovery may take beyond the lock timeout: a tick, and the time until a place is free. */
const RECOVERY_SLACK_S = 2
/** The longest handover, below the lock timeout of 4 s; others that have enough of their own take a stopped one's share within 2.5 s. */
const HANDOVER_S = 3
const LEAST_LONG_STEPS = 5

/** The figures that the lock protocol guarantees. */
const SAFETY: readonly string[] = ['repeated', 'overlapping']
/** Times that rise on a busy machine, which also keeps replicas from renewing their leases. */
const TIMES = ['recoverySeconds', 'handoverSeconds', 'refusedLateWritesOfOthers'] as const

/** The output of `--json`. */
export interface DemoResult extends Omit<Figures, 'examples'>, Judgement {
  readonly documents: number
  /** Outcomes that came late, counted by the replicas themselves: their writes matched no document. */
  readonly refusedLateWrites: number
  /** Those that did not come from the paused replica. */
  readonly refusedLateWritesOfOthers: number
  readonly lockTimeoutSeconds: number
  readonly seconds: number
}

export interface DemoReport {
  readonly result: DemoResult
  /** Evidence for figures that are off: the first few cases, and the logs of replicas. */
  readonly evidence: readonly string[]
}

type Measured = Omit<DemoResult, keyof Judgement>

export function judgeDemo(result: Measured, least: { documents: number }, slow: number = slowness()): Judgement {
  const missing = result.stepsBegun === 0 ? ['expected steps to begin, got none'] : []
  const times = TIMES.filter((figure) => result[figure] !== null) // a fault that never happened wasn't slow
  return judge(whatIsOff(result, least, slow), { safety: SAFETY, times, missing, slowness: slow })
}

/** The figures that are off. Times may be longer by the slowness of the machine. */
function whatIsOff(result: Measured, least: { documents: number }, slow: number): string[] {
  const none = { expected: '0', holds: (value: number) => value === 0 }
  const atLeast = (n: number) => ({ expected: `>= ${n}`, holds: (value: number) => value >= n })
  const atMost = (n: number) => ({ expected: `<= ${Math.round(n * 10) / 10}`, holds: (value: number) => value <= n })
  const demands = {
    documents: atLeast(least.documents),
    lost: none,
    repeated: none,
    overlapping: none,
    refusedLateWrites: atLeast(1),
    refusedLateWritesOfOthers: none,
    recoverySeconds: atMost(result.lockTimeoutSeconds + RECOVERY_SLACK_S * slow),
    handoverSeconds: atMost(HANDOVER_S * slow),
    stepsLongerThanLockTimeout: atLeast(LEAST_LONG_STEPS),
    leasesAtKill: atLeast(LEAST_HIT),
    notBegunAtTerminate: atLeast(LEAST_HIT),
    leasesAtPause: atLeast(LEAST_HIT),
  }
  return Object.entries(demands).flatMap(([figure, { expected, holds }]) => {
    const value = result[figure as keyof typeof demands]
    if (value !== null && holds(value)) return []
    return [`${figure}: expected ${expected}, got ${value ?? 'none: it never happened'}`]
  })
}

/** The text for each figure, in the order of the report. */
const LINES: readonly (readonly [figure: keyof DemoResult, text: string])[] = [
  ['documents', 'gateways, with their triggers, functions and stages'],
  ['stepsBegun', 'steps begun on them and on their databases and domains'],
  ['lost', 'documents whose last step never ended'],
  ['repeated', 'steps that began after a later step of their document'],
  ['overlapping', 'entries within a lease, but after the next holder had begun'],
  ['refusedLateWrites', 'outcomes that came late and changed nothing'],
  ['refusedLateWritesOfOthers', '  of these, not from the paused replica'],
  ['leasesAtKill', 'leases held at the kill -9'],
  ['recoverySeconds', 'seconds from the kill to the claim of the last of them'],
  ['notBegunAtTerminate', 'documents claimed and not begun at the SIGTERM'],
  ['handoverSeconds', 'seconds from the SIGTERM to the next claim of one of them'],
  ['handoverOfAllSeconds', 'seconds until the last of them was claimed'],
  ['leasesAtPause', 'leases held by the replica paused past them'],
  ['stepsLongerThanLockTimeout', 'steps that took longer than the lock timeout and kept their lease'],
  ['lockTimeoutSeconds', 'seconds: the lock timeout'],
  ['seconds', 'seconds: the whole proof'],
]

export function reportText({ result, evidence }: DemoReport): string {
  const verdict = verdictText(result, ['Every recorded step happened once, in its order, under one holder at a time.'])
  return [...figureLines(LINES, result), '', ...verdict, ...evidence.map((line) => `    ${line}`), ''].join('\n')
}
