import { figureLines, verdictText } from '../proof/judgement.ts'
import type { FaultKind } from './plan.ts'
import type { FaultsReport, FaultsResult } from './run-faults.ts'

const LINES: readonly (readonly [figure: keyof FaultsResult, text: string])[] = [
  ['documents', 'gateways, started, stopped and deleted all the time'],
  ['stepsBegun', 'steps begun on them and on their databases and domains'],
  ['orders', 'orders with three parcels each'],
  ['sections', 'sections under named locks'],
  ['runs', 'runs of schedules'],
  ['lost', 'documents whose last step never ended'],
  ['repeated', 'steps that began after a later step of their document'],
  ['overlapping', 'entries within a lease, but after the next holder had begun'],
  ['outOfOrder', 'effects that a receiver which refuses older fences accepted after those of a later step'],
  ['wrongTimed', 'sections under named locks or runs of schedules that are not as they must be'],
  [
    'wrongOrders',
    'orders or parcels that are not as they must be: open, missing, untold, of an old edition, two of a tenant at once',
  ],
  ['stuck', 'sound documents that stay where they are'],
  ['crashed', 'replicas that ended or failed by themselves'],
  ['broken', 'bad documents that did not come to rest like the others'],
  ['refusedLateWrites', 'outcomes that came late and changed nothing'],
  ['refusedByFence', 'effects that it refused'],
  ['settledInSeconds', 'seconds from the last fault until all was at rest'],
  ['seconds', 'seconds: all of it'],
]

const inSeconds = (ms: number) => (ms / 1_000).toFixed(1)

/** The report for people. */
export function faultsReportText({ result, evidence }: FaultsReport): string {
  const faults = Object.entries(result.faults).map(([kind, count]) => {
    const still = result.stoodStillMs[kind as FaultKind]
    const seconds = still && `: no step began for ${inSeconds(still.p50)} s (p50), at most ${inSeconds(still.most)} s`
    return `   ${String(count).padStart(8)}  ${kind}${seconds ?? ''}`
  })
  const leftOut = Object.entries(result.leftOut).map(([kind, reason]) => `  left out  ${kind}: ${reason}`)
  const verdict = verdictText(result, [
    'Every recorded step happened once, in its order, under one holder at a time, and nothing is stuck.',
  ])
  const again = `This run again: npm run chaos -- --${result.replicaSet ? 'replica-set' : 'faults'} --minutes ${result.minutes} --seed ${result.seed}`
  return [
    ...figureLines(LINES, result),
    '',
    ...faults,
    ...leftOut,
    '',
    ...verdict,
    again,
    ...evidence.map((line) => `    ${line}`),
    '',
  ].join('\n')
}
