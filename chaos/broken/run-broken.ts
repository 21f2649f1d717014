import { fileURLToPath } from 'node:url'
import { type CleanUp, withCleanUps } from '../../dist/cli/demo/clean-ups.js'
import { systemClock } from '../../dist/time/index.js'
import { figuresOf } from '../proof/figures.ts'
import { type DemoReplica, Fleet } from '../proof/fleet.ts'
import { figureLines, type Judgement, judge, verdictText } from '../proof/judgement.ts'
import type { LedgerEntry, StepEntry } from '../proof/ledger.ts'
import { type DemoOptions, setUp, watching } from '../proof/run-demo.ts'
import type { Stage } from '../proof/scenario.ts'
import { waitFor } from '../proof/wait-for.ts'
import type { BrokenReplicaConfig } from './replica-process.ts'
import { BREAKABLE, type Breakable, withoutProtection } from './rewrites.ts'
import { throughProxy } from './through-proxy.ts'

const PROGRAM = fileURLToPath(new URL('./replica-process.ts', import.meta.url))
/** Slow enough that most documents are in the middle of a step when a replica is paused or resumed. */
const PACE = { leastMs: 300, mostMs: 1_000 }
/** Each round adds documents and one pause; usually something goes wrong in far fewer rounds. */
const MOST_ROUNDS = 20
const PER_ROUND = 60
const LOOK_EVERY_MS = 500
const LEAST_HIT = 5
const STEPS_WHILE_PAUSED = 2
/** What a protection guarantees: nothing else is judged. */
const SAFETY = ['repeated', 'overlapping'] as const

export interface BrokenOptions extends Omit<DemoOptions, 'documents'> {
  readonly broken: Breakable
}

/** What `--break --json` prints. */
export interface BrokenResult extends Judgement {
  readonly documents: number
  readonly repeated: number
  readonly overlapping: number
  readonly stepsBegun: number
  readonly refusedLateWrites: number
  readonly lockTimeoutSeconds: number
  readonly seconds: number
  /** The protection that was turned off. */
  readonly broken: Breakable
}

export interface BrokenReport {
  readonly result: BrokenResult
  readonly evidence: readonly string[]
}

/**
 * Replicas without one protection work on gateways, and one of them is paused past its leases, again and again, until a figure
 * that the protection guarantees is off. Leaves no process and no data behind.
 * @throws NoProxy; ReplicaFailed; Interrupted; what connectDatabase throws
 */
export const runBroken = (options: BrokenOptions): Promise<BrokenReport> =>
  withCleanUps(options.signal, (atEnd) => run(options, atEnd))

async function run(options: BrokenOptions, atEnd: (cleanUp: CleanUp) => void): Promise<BrokenReport> {
  const { broken, lockTimeoutMs, screen } = options
  screen.note(`turned off: ${broken} (${BREAKABLE[broken]})`)
  const stage = await setUp({ ...options, documents: PER_ROUND }, atEnd)
  const { owner } = stage
  const pace = { ...stage.config.pace, ...PACE }
  const { uri: ledgerUri } = stage.config
  const config: Omit<BrokenReplicaConfig, 'name' | 'uri'> = { ...stage.config, pace, ledgerUri }
  const addressOf = async (clockAheadMs: number) => {
    const now = () => new Date(systemClock.now().getTime() + clockAheadMs)
    const { uri, proxy } = await throughProxy(ledgerUri, withoutProtection(broken, now))
    atEnd(() => proxy.close())
    return { uri }
  }
  const onTime = await addressOf(0)
  const ahead = await addressOf(2 * lockTimeoutMs)
  const fleet = new Fleet<Partial<BrokenReplicaConfig>>([PROGRAM], config)
  atEnd(() => fleet.end())
  await watching(fleet, screen, owner, async () => {
    const [paused] = await Promise.all([fleet.start('a', onTime), fleet.start('b', ahead), fleet.start('c', onTime)])
    for (let round = 1; round <= MOST_ROUNDS && !(await isUnsafe(stage)); round += 1) {
      screen.stage(`round ${round}: ${PER_ROUND} more gateways, and replica ${paused.name} is paused past its leases`)
      await owner.insert(PER_ROUND)
      await pauseOnce(paused, stage)
    }
  })
  screen.stage('reading the ledger')
  const { examples, repeated, overlapping, stepsBegun } = await figuresSoFar(stage)
  const measured = {
    documents: owner.count,
    repeated,
    overlapping,
    stepsBegun,
    refusedLateWrites: fleet.refusedLateWrites(),
    lockTimeoutSeconds: lockTimeoutMs / 1_000,
    seconds: screen.seconds,
    broken,
  }
  const wrong = SAFETY.filter((figure) => measured[figure] > 0)
  const lines = wrong.map((figure) => `${figure}: expected 0, got ${measured[figure]}`)
  const missing = stepsBegun === 0 ? ['expected steps to begin, got none'] : []
  const judgement = judge(lines, { safety: SAFETY, missing, slowness: fleet.slowness() })
  const evidence = judgement.verdict === 'shown' ? [] : [...examples, ...fleet.lastWords()]
  return { result: { ...measured, ...judgement }, evidence }
}

/** Pauses it in the middle of steps, until others have gone on with them; then what it does comes late. */
async function pauseOnce(replica: DemoReplica, stage: Stage): Promise<void> {
  const { ledger, leases, config } = stage
  const until = (look: () => boolean | Promise<boolean>, forMs?: number) =>
    waitFor(async () => (await isUnsafe(stage)) || look(), {
      everyMs: LOOK_EVERY_MS,
      ...(forMs === undefined ? { progress: () => ledger.size() } : { forMs }),
    })
  await until(async () => openSteps(await ledger.all(), replica.name).length >= LEAST_HIT)
  replica.pause()
  const open = openSteps(await ledger.all(), replica.name)
  await until(async () => (await leases.goneOn(open, STEPS_WHILE_PAUSED)).length >= Math.min(LEAST_HIT, open.length))
  replica.resume()
  await until(() => false, config.lockTimeoutMs)
}

/** Steps that a replica has begun and not ended: without tokens `lockedBy` doesn't show which replica holds what. */
function openSteps(entries: readonly LedgerEntry[], replica: string): StepEntry[] {
  const steps = entries.filter((entry) => entry.kind !== 'fault').filter((entry) => entry.replica === replica)
  const key = ({ document, fence }: StepEntry) => `${document} ${fence}`
  const ended = new Set(steps.filter(({ kind }) => kind === 'end').map(key))
  return steps.filter((entry) => entry.kind === 'begin' && !ended.has(key(entry)))
}

const figuresSoFar = async ({ ledger, owner, config }: Stage) =>
  figuresOf(await ledger.all(), owner.expectedEnds(), config.lockTimeoutMs)

async function isUnsafe(stage: Stage): Promise<boolean> {
  const { repeated, overlapping } = await figuresSoFar(stage)
  return repeated + overlapping > 0
}

const LINES: readonly (readonly [figure: keyof BrokenResult, text: string])[] = [
  ['documents', 'gateways, with their triggers, functions and stages'],
  ['stepsBegun', 'steps begun on them and on their databases and domains'],
  ['repeated', 'steps that began after a later step of their document'],
  ['overlapping', 'entries within a lease, but after the next holder had begun'],
  ['refusedLateWrites', 'outcomes that came late and changed nothing'],
  ['lockTimeoutSeconds', 'seconds: the lock timeout'],
  ['seconds', 'seconds: all of it'],
]

/** The report for people. */
export function brokenReportText({ result, evidence }: BrokenReport): string {
  const { broken } = result
  return [
    ...figureLines(LINES, result),
    '',
    `Turned off as you asked: ${broken}: ${BREAKABLE[broken]}.`,
    ...verdictText(result, ['Nothing went wrong this time.']),
    ...evidence.map((line) => `    ${line}`),
    '',
  ].join('\n')
}
