import { BREAKABLE, type Breakable } from './broken-protocols.js'
import { openDemoDatabase } from './demo-database.js'
import { figuresOf } from './figures.js'
import { Fleet } from './fleet.js'
import { GatewayOwner } from './gateway-owner.js'
import { slowness } from './judgement.js'
import { Leases } from './leases.js'
import { Ledger } from './ledger.js'
import { ReplicaFailed } from './replica-link.js'
import { Scenario } from './scenario.js'
import type { Screen } from './screen.js'
import { type DemoResult, judgeDemo } from './verdict.js'
import { waitFor } from './wait-for.js'

/** Of 300 documents, in each of the three lifecycles on each replica; of fewer in proportion. */
const CONCURRENCY = 32
const LEAST_CONCURRENCY = 8
const FULL_SIZE = 300
/** Short: a replica claims ahead what it can begin within a quarter of a second, so that it has something that it hasn't begun. */
const PACE = { leastMs: 20, mostMs: 120 }
/** Slow steps take that much longer than the lock timeout: without renewal another replica has claimed the document by then. */
const SLOW_BEYOND_MS = 2_500
const GRACE_MS = 10_000
/** All must be done by then, counted from when the replicas are at work, on a machine that isn't busy. */
const DONE_WITHIN_S = 82
/** Without a protection documents may never be done: as soon as a figure is wrong, and so many lock timeouts after the last fault at the latest, the figures are taken. */
const BROKEN_DONE_WITHIN = 4

export interface DemoOptions {
  readonly documents: number
  readonly lockTimeoutMs: number
  readonly broken: Breakable | null
  readonly screen: Screen
  /** A file that gets the ledger, an entry a line, also when the demo fails. */
  readonly ledgerFile?: string | undefined
  /** Ends the run early; everything is cleaned up, then `Interrupted` is thrown. */
  readonly signal: AbortSignal
}

export interface DemoReport {
  readonly result: DemoResult
  /** Of what is off: the first few cases, and what the replicas said. */
  readonly evidence: readonly string[]
}

/** Thrown when the demo was told to stop. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted'
  constructor() {
    super('the demo was interrupted; its processes and its data are gone')
  }
}

/**
 * Runs the whole demo in a database of its own, and leaves nothing behind: no process, no data.
 * @throws DemoNotSetUp when a fault didn't hit what it was to hit; ReplicaFailed; Interrupted; what connectDatabase throws
 */
export async function runDemo(options: DemoOptions): Promise<DemoReport> {
  const cleanUps: CleanUp[] = []
  try {
    return await run(options, (cleanUp) => cleanUps.push(cleanUp))
  } finally {
    for (const cleanUp of cleanUps.reverse()) await cleanUp()
  }
}

type CleanUp = () => Promise<void>

async function run(
  { documents, lockTimeoutMs, broken, screen, signal, ledgerFile }: DemoOptions,
  atEnd: (cleanUp: CleanUp) => void,
): Promise<DemoReport> {
  screen.note(broken ? `turned off: ${broken} (${BREAKABLE[broken]})` : 'nothing turned off')
  const database = await openDemoDatabase((text) => screen.note(text))
  atEnd(() => database.close())
  const { connection, name } = database
  const ledger = new Ledger(connection.db)
  await ledger.prepare()
  if (ledgerFile !== undefined) atEnd(() => ledger.writeTo(ledgerFile))
  const owner = await GatewayOwner.connect(connection.uri, name)
  atEnd(() => owner.close())
  if (database.serverGoesOn) atEnd(() => owner.dropDatabases())
  const concurrency = Math.max(LEAST_CONCURRENCY, Math.round((CONCURRENCY * documents) / FULL_SIZE))
  const pace = { ...PACE, slowMs: lockTimeoutMs + SLOW_BEYOND_MS }
  const fleet = new Fleet({
    uri: connection.uri,
    database: name,
    lockTimeoutMs,
    concurrency,
    graceMs: GRACE_MS,
    pace,
    broken,
  })
  atEnd(() => fleet.end())
  const leases = new Leases(connection.db, ledger, broken)
  const scenario = new Scenario({
    documents,
    lockTimeoutMs,
    broken,
    concurrency,
    pace,
    fleet,
    owner,
    ledger,
    leases,
    screen,
  })
  const figuresSoFar = async () => figuresOf(await ledger.all(), owner.expectedEnds(), lockTimeoutMs)
  const isUnsafe = async () => {
    const { repeated, overlapping } = await figuresSoFar()
    return repeated + overlapping > 0
  }
  const allDone = async () => {
    await scenario.run()
    screen.stage('waiting until all is done')
    const done = async () =>
      (await owner.arrived()) === owner.count ? (await leases.working()) === 0 : broken !== null && (await isUnsafe())
    const worked = screen.seconds - scenario.readyAtSeconds
    const leftMs = Math.max(0, DONE_WITHIN_S * slowness() - worked) * 1_000
    const forMs = broken ? Math.min(leftMs, BROKEN_DONE_WITHIN * lockTimeoutMs) : leftMs
    await waitFor(done, { forMs, everyMs: broken ? 1_000 : 250 })
  }
  await untilAborted(signal, withProgress(screen, owner, failingWith(fleet, allDone())))
  screen.stage('reading the ledger')
  const { examples, ...figures } = await figuresSoFar()
  const refused = fleet.replicas.map((replica) => ({ replica, count: replica.refusedLateWrites }))
  const sum = (of: typeof refused) => of.reduce((total, { count }) => total + count, 0)
  const measured = {
    documents: owner.count,
    ...figures,
    refusedLateWrites: sum(refused),
    refusedLateWritesOfOthers: sum(refused.filter(({ replica }) => replica !== scenario.pausedReplica)),
    lockTimeoutSeconds: lockTimeoutMs / 1_000,
    seconds: screen.seconds,
    broken,
  }
  const judgement = judgeDemo(measured, { documents })
  const evidence = judgement.verdict === 'shown' ? [] : [...examples, ...fleet.lastWords()]
  return { result: { ...measured, ...judgement }, evidence }
}

/** A replica that fails where it must not ends the run at once. */
async function failingWith(fleet: Fleet, work: Promise<void>): Promise<void> {
  let over = false
  const watched = waitFor(() => over || fleet.failure(), { forMs: Number.POSITIVE_INFINITY, everyMs: 250 })
  const failure = watched.then((said) => {
    if (typeof said === 'string') throw new ReplicaFailed('of the demo', said)
  })
  try {
    await Promise.race([work, failure.then(() => work)])
  } finally {
    over = true
  }
}

/** Keeps the bar up to date while work goes on. */
async function withProgress(screen: Screen, owner: GatewayOwner, work: Promise<void>): Promise<void> {
  let over = false
  const shown = waitFor(
    async () => {
      screen.progress(await owner.arrived().catch(() => 0), owner.count)
      return over
    },
    { forMs: Number.POSITIVE_INFINITY, everyMs: 500 },
  )
  try {
    await work
  } finally {
    over = true
    await shown
  }
}

async function untilAborted(signal: AbortSignal, work: Promise<void>): Promise<void> {
  const aborted = new Promise<never>((_, reject) => {
    const interrupt = () => reject(new Interrupted())
    if (signal.aborted) interrupt()
    else signal.addEventListener('abort', interrupt, { once: true })
  })
  work.catch(() => undefined)
  await Promise.race([work, aborted])
}
