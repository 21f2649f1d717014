import { basename, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type CleanUp, Interrupted, withCleanUps } from '../../dist/cli/demo/clean-ups.js'
import { sleep, systemClock } from '../../dist/time/index.js'
import { figuresOf } from '../proof/figures.ts'
import { Fleet } from '../proof/fleet.ts'
import { type Judgement, judge, slowness } from '../proof/judgement.ts'
import { Ledger } from '../proof/ledger.ts'
import { DemoNotSetUp } from '../proof/scenario.ts'
import type { Screen } from '../proof/screen.ts'
import { type FaultsDatabase, openLocalDatabase, openReplicaSet } from './faults-database.ts'
import { OrdersOwner, SECTION } from './orders.ts'
import { type Fault, type FaultKind, planFaults, ROUND_KINDS, Rounds } from './plan.ts'
import { randomOf } from './random.ts'
import { Receiver } from './receiver.ts'
import type { FaultsReplicaConfig } from './replica-process.ts'
import { RestlessOwner } from './restless-owner.ts'
import { type StuckDocument, settle } from './settling.ts'
import { STAFF_SIZE, Staff } from './staff.ts'
import { type StandStills, type Struck, standStills } from './stand-stills.ts'
import { Striker } from './striker.ts'
import { TimedRecord, wrongRuns, wrongSections } from './timed-record.ts'
import { SCHEDULE_EVERY_MS, TimedOwner } from './timed-work.ts'

const PROGRAM = fileURLToPath(new URL('./replica-process.ts', import.meta.url))
const CONCURRENCY = 32
/** As many as two of the three replicas run: a limit that is taken for all that is done. */
const MAX_ACTIVE = 2 * CONCURRENCY
const PACE = { leastMs: 10, mostMs: 60, slowMs: 0 }
const GRACE_MS = 10_000
/** Longer than the lock timeout, so that a hanging step has been renewed before it is given up. */
const STEP_TIMEOUT_IN_LOCK_TIMEOUTS = 2
const OWNER_EVERY_MS = 500
/** A document is stuck after this many lock timeouts, counting the longer one that faults may set. */
const PATIENCE_IN_LOCK_TIMEOUTS = 3 * 1.5
const EVIDENCE = 10

export interface FaultsOptions {
  /** On a replica set of three instead of a local database. */
  readonly replicaSet: boolean
  readonly minutes: number
  readonly seed: number
  /** The faults that strike. Default: all. */
  readonly only?: readonly FaultKind[] | undefined
  readonly lockTimeoutMs: number
  /** A built checkout of another version: every second replica that starts is one of its own. Default: all are of this version. */
  readonly beside?: string | undefined
  readonly screen: Screen
  readonly ledgerFile?: string | undefined
  readonly signal: AbortSignal
}

/** What `--faults --json` prints. */
export interface FaultsResult extends Judgement {
  readonly documents: number
  readonly lost: number
  readonly repeated: number
  readonly overlapping: number
  /** Orders with three parcels each, and what is wrong with them: see orders.ts. */
  readonly orders: number
  readonly wrongOrders: number
  /** Sections under named locks, and runs of schedules; only on a replica set. */
  readonly sections: number
  readonly runs: number
  /** Of these: two at once, a fence that didn't grow, a due time without a run, a run that didn't end or was tried without need. */
  readonly wrongTimed: number
  /** Sound documents that don't get to where they should be: see settling.ts. */
  readonly stuck: number
  /** Replicas that ended or failed without being told to. */
  readonly crashed: number
  /** Among the documents that aren't sound: those that didn't come to rest like sound ones. */
  readonly broken: number
  readonly refusedLateWrites: number
  /** Effects that the receiver accepted after those of a later step: their fences weren't older. */
  readonly outOfOrder: number
  /** Effects that the receiver refused. */
  readonly refusedByFence: number
  /** How often each fault struck. */
  readonly faults: Readonly<Partial<Record<FaultKind, number>>>
  /** Faults that this machine can't have, and why. */
  readonly leftOut: FaultsDatabase['leftOut']
  /** The longest time without a step that began, for each fault of the database. */
  readonly stoodStillMs: StandStills
  readonly stepsBegun: number
  readonly settledInSeconds: number
  readonly lockTimeoutSeconds: number
  readonly seconds: number
  readonly replicaSet: boolean
  readonly minutes: number
  readonly seed: number
}

export interface FaultsReport {
  readonly result: FaultsResult
  readonly evidence: readonly string[]
}

/**
 * Replicas work on gateways that are never left alone, and every second a random fault strikes; then everything settles. Leaves no
 * process and no data behind. Always on a database of its own, because it is killed.
 * @throws Interrupted; NoMongod; what connectDatabase throws
 */
export const runFaults = (options: FaultsOptions): Promise<FaultsReport> =>
  withCleanUps(options.signal, (atEnd) => run(options, atEnd))

async function run(
  { replicaSet, minutes, seed, only, lockTimeoutMs, beside, screen, signal, ledgerFile }: FaultsOptions,
  atEnd: (cleanUp: CleanUp) => void,
): Promise<FaultsReport> {
  screen.note(`faults for ${minutes} minutes, seed ${seed}`)
  const open = replicaSet ? openReplicaSet : openLocalDatabase
  const database = await open((text, fields) => screen.note(fields ? `${text} ${JSON.stringify(fields)}` : text))
  atEnd(() => database.close())
  const { db, uri, leftOut } = database
  for (const [kind, reason] of Object.entries(leftOut)) screen.note(`${kind} is left out: ${reason}`)
  const kinds = database.kinds.filter((kind) => only?.includes(kind) ?? true)
  const ledger = new Ledger(database.ledger.db)
  await ledger.prepare()
  if (ledgerFile !== undefined) atEnd(() => ledger.writeTo(ledgerFile))
  const owner = await RestlessOwner.connect(uri, db.databaseName, randomOf(seed + 1))
  atEnd(() => owner.close())
  const config: Omit<FaultsReplicaConfig, 'name' | 'uri'> = {
    database: db.databaseName,
    lockTimeoutMs,
    concurrency: CONCURRENCY,
    graceMs: GRACE_MS,
    pace: PACE,
    ledgerUri: database.ledger.uri,
    stepTimeoutMs: STEP_TIMEOUT_IN_LOCK_TIMEOUTS * lockTimeoutMs,
    timedWork: replicaSet,
    maxActive: MAX_ACTIVE,
  }
  const timed = new TimedOwner(db)
  if (replicaSet) await timed.begin()
  const programs =
    beside === undefined ? [PROGRAM] : [PROGRAM, join(resolve(beside), 'chaos', 'faults', basename(PROGRAM))]
  const fleet = new Fleet<Partial<FaultsReplicaConfig>>(programs, config)
  atEnd(() => fleet.end())
  const staff = new Staff(fleet, database.disturbedUri)
  const busy = { over: false }
  atEnd(async () => {
    busy.over = true
    staff.rest()
  })
  staff.start()
  const stopped = () => signal.aborted
  const atFirst = await staff.complete(stopped)
  if (stopped()) throw new Interrupted()
  if (atFirst < STAFF_SIZE) throw new DemoNotSetUp(`${STAFF_SIZE} replicas at work`, `${atFirst}`)
  const striker = new Striker({ staff, owner, database, lockTimeoutMs })
  const struck: Struck[] = []
  const orders = new OrdersOwner(db, database.ledger.db, randomOf(seed + 2))
  const work = Promise.all([keepBusy(owner, busy), orders.work(busy)])
  work.catch(() => undefined)
  const strike = async (fault: Fault) => {
    screen.note(fault.forMs > 0 ? `${fault.kind} for ${fault.forMs / 1_000} s` : fault.kind)
    const times = await striker.strike(fault)
    if (times) struck.push({ kind: fault.kind, ...times })
  }
  const beginMs = systemClock.monotonicMs()
  const leftMs = () => beginMs + minutes * 60_000 - systemClock.monotonicMs()
  const rounds = new Rounds(
    seed,
    kinds.filter((kind) => ROUND_KINDS.has(kind)),
  )
  /** As many as there is time for, but each once. */
  const inRounds = async () => {
    while (!signal.aborted && (leftMs() > 0 || rounds.fewest === 0)) {
      const fault = rounds.next()
      if (!fault) return
      await strike(fault)
    }
  }
  const under: Promise<void>[] = []
  const also = (striking: Promise<void>) => {
    striking.catch(() => undefined)
    under.push(striking)
    return striking
  }
  const allRounds = also(inRounds())
  const others = kinds.filter((kind) => !ROUND_KINDS.has(kind))
  for (const fault of planFaults(seed, minutes * 60, others)) {
    await sleep(Math.max(0, beginMs + fault.atMs - systemClock.monotonicMs()))
    if (signal.aborted) throw new Interrupted()
    void also(strike(fault))
  }
  await allRounds
  screen.stage('no more faults: waiting until all is at rest')
  await Promise.all(under)
  busy.over = true
  await work
  // A replica that is still starting settles nothing: the time counts from when all are at work.
  const atWork = await staff.complete(stopped)
  const settleMs = systemClock.monotonicMs()
  const stuck = await settle({
    db,
    owner,
    ledger,
    patienceMs: PATIENCE_IN_LOCK_TIMEOUTS * lockTimeoutMs * fleet.slowness(),
    stopped,
  })
  if (signal.aborted) throw new Interrupted()
  const settledInSeconds = Math.round((systemClock.monotonicMs() - settleMs) / 100) / 10
  const patienceMs = PATIENCE_IN_LOCK_TIMEOUTS * lockTimeoutMs * fleet.slowness()
  const wrongOrders = await orders.end(patienceMs, stopped)
  if (signal.aborted) throw new Interrupted()
  const runs = replicaSet ? await timed.end() : []
  screen.stage('reading the ledger')
  const crashed = staff.crashed()
  const { figures, examples } = await readLedger(ledger, owner, { lockTimeoutMs, struck })
  const { outOfOrder, refused: refusedByFence } = await new Receiver(database.ledger.db).totals()
  const record = new TimedRecord(database.ledger.db)
  const sections = (await record.allSections()).filter(({ lock }) => !lock.startsWith(SECTION))
  const wrongTimed = [...wrongSections(sections), ...wrongRuns(runs, await record.triesByRun(), SCHEDULE_EVERY_MS)]
  const measured = {
    documents: owner.count,
    ...figures,
    outOfOrder,
    orders: orders.count,
    wrongOrders: wrongOrders.length,
    sections: sections.length,
    runs: runs.length,
    wrongTimed: wrongTimed.length,
    stuck: stuck.length,
    crashed: crashed.length,
    broken: await owner.broken(),
    refusedLateWrites: fleet.refusedLateWrites(),
    refusedByFence,
    faults: countsOf(struck),
    leftOut,
    settledInSeconds,
    lockTimeoutSeconds: lockTimeoutMs / 1_000,
    seconds: screen.seconds,
    replicaSet,
    minutes,
    seed,
  }
  const judgement = judgeFaults({ ...measured, atWork }, fleet.slowness())
  const evidence = [
    ...examples,
    ...wrongTimed.slice(0, EVIDENCE),
    ...wrongOrders.slice(0, EVIDENCE),
    ...stuck.slice(0, EVIDENCE).map(describe),
    ...crashed,
    ...fleet.lastWords(),
  ]
  return { result: { ...measured, ...judgement }, evidence: judgement.verdict === 'shown' ? [] : evidence }
}

const MUST_BE_ZERO = [
  'lost',
  'repeated',
  'overlapping',
  'outOfOrder',
  'wrongTimed',
  'wrongOrders',
  'stuck',
  'crashed',
] as const
/** The other figures may also mean that no replica was there, or had the time. */
const SAFETY = ['repeated', 'overlapping', 'outOfOrder', 'crashed']

type Judged = Omit<FaultsResult, keyof Judgement> & { readonly atWork: number }

export function judgeFaults(measured: Judged, slow: number = slowness()): Judgement {
  const { stepsBegun, faults, atWork } = measured
  const lines = MUST_BE_ZERO.filter((figure) => measured[figure] !== 0).map(
    (figure) => `${figure}: expected 0, got ${measured[figure]}`,
  )
  const missing = [
    stepsBegun === 0 && 'expected steps to begin, got none',
    Object.keys(faults).length === 0 && 'expected faults that strike, got none',
    atWork < STAFF_SIZE && `expected ${STAFF_SIZE} replicas at work when the faults were over, got ${atWork}`,
  ].filter((reason) => reason !== false)
  return judge(lines, { safety: SAFETY, missing, slowness: slow })
}

/** Order and overlaps for all documents; lost ones only where an end can be expected. */
async function readLedger(
  ledger: Ledger,
  owner: RestlessOwner,
  { lockTimeoutMs, struck }: { lockTimeoutMs: number; struck: readonly Struck[] },
) {
  const entries = await ledger.all()
  const exempt = owner.exempt()
  const expected = owner.expectedEnds()
  const sound = figuresOf(
    entries.filter((entry) => entry.kind === 'fault' || !exempt.has(entry.document)),
    expected,
    lockTimeoutMs,
  )
  const all = figuresOf(entries, expected, lockTimeoutMs)
  const { repeated, overlapping, stepsBegun } = all
  const examples = [
    ...sound.examples.filter((line) => line.startsWith('lost')),
    ...all.examples.filter((line) => !line.startsWith('lost')),
  ]
  const stoodStillMs = standStills(struck, entries)
  return { figures: { lost: sound.lost, repeated, overlapping, stepsBegun, stoodStillMs }, examples }
}

function countsOf(struck: readonly Struck[]): FaultsResult['faults'] {
  const counts: Partial<Record<FaultKind, number>> = {}
  for (const { kind } of struck) counts[kind] = 1 + (counts[kind] ?? 0)
  return counts
}

/** Gateways come, start, stop and go until it is over. */
async function keepBusy(owner: RestlessOwner, busy: { readonly over: boolean }): Promise<void> {
  while (!busy.over) {
    await Promise.all([owner.insert(), owner.changeMind()])
    await sleep(OWNER_EVERY_MS)
  }
}

const describe = ({ document, where }: StuckDocument) => `stuck: ${document}: ${where}`
