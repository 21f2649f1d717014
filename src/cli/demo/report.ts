import { BREAKABLE, isBreakable } from './broken-protocols.js'
import { verdictText } from './judgement.js'
import type { DemoReport } from './run-demo.js'
import type { DemoResult } from './verdict.js'

/** What each figure says, in the order of the report. */
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
  const isOff = (figure: string) => result.off.some((line) => line.startsWith(`${figure}:`))
  const lines = LINES.map(([figure, text]) => {
    const value = result[figure] === null ? 'never' : String(result[figure])
    return `${isOff(figure) ? ' ✗' : '  '} ${value.padStart(8)}  ${text}`
  })
  return [...lines, '', ...verdict(result), ...evidence.map((line) => `    ${line}`), ''].join('\n')
}

function verdict(result: DemoResult): string[] {
  const { broken } = result
  if (broken === null)
    return verdictText(result, ['Every recorded step happened once, in its order, under one holder at a time.'])
  const without = isBreakable(broken) ? [`Turned off as you asked: ${broken}: ${BREAKABLE[broken]}.`] : []
  return [...without, ...verdictText(result, ['Nothing went wrong this time.'])]
}
