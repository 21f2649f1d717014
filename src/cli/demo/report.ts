import { type Judgement, verdictText } from './judgement.js'
import type { DemoReport } from './run-demo.js'
import type { DemoResult } from './verdict.js'

/** The text for each figure, in the order of the report. */
const LINES: readonly (readonly [figure: keyof DemoResult, text: string])[] = [
  ['documents', 'gateways, with their triggers, functions and stages'],
  ['stepsBegun', 'steps begun on them and on their databases and domains'],
  ['lost', 'documents whose last step never ended'],
  ['repeated', 'steps that began after a later step of their document'],
  ['overlapping', 'entries within a lease, but after the next holder had begun'],
  ['refusedLateWrites', 'outcomes that came late and changed nothing'],
  ['refusedLateWritesOfOthers', '  of them not of the paused replica'],
  ['leasesAtKill', 'leases held at the kill -9'],
  ['recoverySeconds', 'seconds from the kill to the claim of the last of them'],
  ['notBegunAtTerminate', 'documents claimed and not begun at the SIGTERM'],
  ['handoverSeconds', 'seconds from the SIGTERM to the next claim of one of them'],
  ['handoverOfAllSeconds', 'seconds until the last of them was claimed'],
  ['leasesAtPause', 'leases held by the replica paused past them'],
  ['stepsLongerThanLockTimeout', 'steps that took longer than the lock timeout and kept their lease'],
  ['lockTimeoutSeconds', 'seconds: the lock timeout'],
  ['seconds', 'seconds: the whole demo'],
]

/** The report for people. */
export function reportText({ result, evidence }: DemoReport): string {
  const verdict = verdictText(result, ['Every recorded step happened once, in its order, under one holder at a time.'])
  return [...figureLines(LINES, result), '', ...verdict, ...evidence.map((line) => `    ${line}`), ''].join('\n')
}

/** A line for each figure, with a mark on those that are off. */
export function figureLines<Result extends Judgement>(
  lines: readonly (readonly [figure: keyof Result & string, text: string])[],
  result: Result,
): string[] {
  const isOff = (figure: string) => result.off.some((line) => line.startsWith(`${figure}:`))
  return lines.map(
    ([figure, text]) => `${isOff(figure) ? ' ✗' : '  '} ${String(result[figure] ?? 'never').padStart(8)}  ${text}`,
  )
}
