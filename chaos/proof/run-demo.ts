import { fileURLToPath } from 'node:url'
import { type CleanUp, withCleanUps } from '../../dist/cli/demo/clean-ups.js'
import { openDemoDatabase } from '../../dist/cli/demo/demo-database.js'
import { ReplicaFailed } from '../../dist/cli/processes/replica-process.js'
import { figuresOf } from './figures.ts'
import { Fleet } from './fleet.ts'
import { GatewayOwner } from './gateway-owner.ts'
import { Leases } from './leases.ts'
import { Ledger } from './ledger.ts'
import { Scenario, type Stage } from './scenario.ts'
import type { Screen } from './screen.ts'
import { type DemoReport, judgeDemo } from './verdict.ts'
import { waitFor } from './wait-for.ts'

const PROGRAM = fileURLToPath(new URL('./replica-process.ts', import.meta.url))
/** The concurrency with 300 documents, for each of the three lifecycles on each replica; for fewer in proportion. */
const CONCURRENCY = 32
const LEAST_CONCURRENCY = 8
const FULL_SIZE = 300
/**
 * A short pace: a replica claims ahead only the steps that it can begin within a quarter of a second, and must have claimed some that it
 * hasn't begun.
 */
const PACE = { leastMs: 20, mostMs: 120 }
/**
 * The time that slow steps take beyond the lock timeout: without renewal another replica would have claimed the document before their end.
 */
const SLOW_BEYOND_MS = 2_500
const GRACE_MS = 10_000
const LOOK_EVERY_MS = 500

export interface DemoOptions {
  readonly documents: number
  readonly lockTimeoutMs: number
  readonly screen: Screen
  /** A file for the ledger, one entry a line, written even when the demo fails. */
  readonly ledgerFile?: string | undefined
  /** Ends the run early; everything is cleaned up, then `Interrupted` is thrown. */
  readonly signal: AbortSignal
}

/**
 * Runs the whole demo in its own database, and leaves nothing behind: no process, no data.
 * @throws DemoNotSetUp when a fault missed its target; ReplicaFailed; Interrupted; what connectDatabase throws
 */
export const runDemo = (options: DemoOptions): Promise<DemoReport> =>
  withCleanUps(options.signal, (atEnd) => run(options, atEnd))

async function run(options: DemoOptions, atEnd: (cleanUp: CleanUp) => void): Promise<DemoReport> {
  const { documents, lockTimeoutMs, screen } = options
  const stage = await setUp(options, atEnd)
  const { owner, ledger, leases, config } = stage
  const fleet = new Fleet([PROGRAM], config)
  atEnd(() => fleet.end())
  const scenario = new Scenario({ ...stage, documents, fleet, screen })
  await watching(fleet, screen, owner, async () => {
    await scenario.run()
    screen.stage('waiting until all is done')
    const isDone = async () => (await owner.arrived()) === owner.count && (await leases.working()) === 0
    await waitFor(isDone, { progress: () => owner.arrived(), everyMs: 250 })
  })
  screen.stage('reading the ledger')
  const { examples, ...figures } = figuresOf(await ledger.all(), owner.expectedEnds(), lockTimeoutMs)
  const measured = {
    documents: owner.count,
    ...figures,
    refusedLateWrites: fleet.refusedLateWrites(),
    refusedLateWritesOfOthers: fleet.refusedLateWrites((replica) => replica !== scenario.pausedReplica),
    lockTimeoutSeconds: lockTimeoutMs / 1_000,
    seconds: screen.seconds,
  }
  const judgement = judgeDemo(measured, { documents }, fleet.slowness())
  const evidence = judgement.verdict === 'shown' ? [] : [...examples, ...fleet.lastWords()]
  return { result: { ...measured, ...judgement }, evidence }
}

/** @param atEnd gets the clean-ups: they close everything and write the ledger's file */
export async function setUp(
  { documents, lockTimeoutMs, screen, ledgerFile }: Omit<DemoOptions, 'signal'>,
  atEnd: (cleanUp: CleanUp) => void,
): Promise<Stage> {
  const { connection, name: database, serverGoesOn, close } = await openDemoDatabase((text) => screen.note(text))
  atEnd(close)
  const ledger = new Ledger(connection.db)
  await ledger.prepare()
  if (ledgerFile !== undefined) atEnd(() => ledger.writeTo(ledgerFile))
  const { uri } = connection
  const owner = await GatewayOwner.connect(uri, database)
  atEnd(() => owner.close())
  if (serverGoesOn) atEnd(() => owner.dropDatabases())
  const concurrency = Math.max(LEAST_CONCURRENCY, Math.round((CONCURRENCY * documents) / FULL_SIZE))
  const pace = { ...PACE, slowMs: lockTimeoutMs + SLOW_BEYOND_MS }
  const config = { uri, database, lockTimeoutMs, concurrency, graceMs: GRACE_MS, pace }
  return { owner, ledger, leases: new Leases(connection.db, ledger), config }
}

/** Keeps the bar up to date while work goes on. @throws ReplicaFailed as soon as a replica fails unexpectedly */
export async function watching(
  fleet: Fleet,
  screen: Screen,
  owner: GatewayOwner,
  work: () => Promise<void>,
): Promise<void> {
  let isOver = false
  const look = async () => {
    screen.progress(await owner.arrived().catch(() => 0), owner.count)
    return isOver || fleet.failure()
  }
  const watched = waitFor(look, { forMs: Number.POSITIVE_INFINITY, everyMs: LOOK_EVERY_MS }).then((failure) => {
    if (typeof failure === 'string') throw new ReplicaFailed('of the demo', failure)
  })
  const working = work().finally(() => {
    isOver = true
  })
  await Promise.race([working, watched.then(() => working)])
  await watched
}
