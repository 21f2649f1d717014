import type { Duty } from '../../lock/index.js'
import { type Census, type Count, SWEEP, sumOf } from '../../phases/index.js'
import { listOperations, type OperationState } from '../bulk/operations.js'
import { type Causes, causesWith } from '../causes/causes.js'
import { causeText, isAcknowledged } from '../causes/row.js'
import type { CensusRequest } from '../inspect/count.js'
import { type ListedPause, pausedText } from '../pauses/change.js'
import type { System } from '../system/system.js'

/** The documents of one lifecycle, as its last census counted them. */
export interface LifecycleStatus {
  readonly lifecycle: string
  /** The number of live replicas that run it. */
  readonly replicas: number
  /** The census; null: none was taken. Then no count of it is known, and all of them are 0. */
  readonly census: Census | null
  /** Why there is no census; null: there is one. */
  readonly whyNone: string | null
  readonly documents: Count
  readonly due: Count
  /** The time for which the oldest due one had been due at the census, in seconds. */
  readonly oldestDueSeconds: number
  /** The number of due ones that don't record when they became due, and count in no age; at most 1,000 for each phase. */
  readonly undated: number
  readonly held: number
  readonly sleeping: Count
  /** The sleeping ones that wait for an answer. */
  readonly asking: Count
  readonly parked: Count
  /** Those whose last step failed, and that will be tried again. */
  readonly failing: Count
}

/** The numbers of operations on many documents that haven't ended, by condition. */
export interface OperationsOpen {
  readonly running: number
  /** No process works on them now. */
  readonly waiting: number
  /** They could not continue, and wait for a person. */
  readonly parked: number
}

/** A whole system at a glance. Times are the server's. */
export interface SystemStatus {
  readonly now: Date
  /** The number of live replicas by version; '?' for an unknown version. */
  readonly versions: Readonly<Record<string, number>>
  readonly lifecycles: readonly LifecycleStatus[]
  /** What needs a person. */
  readonly causes: Causes
  readonly pauses: readonly ListedPause[]
  readonly duties: readonly Duty[]
  /** Operations on many documents that haven't ended; at most 100. */
  readonly operations: OperationsOpen
  /** The causes that nobody has acknowledged, and what else a person should look at, in sentences; empty if there are none. */
  readonly problems: readonly string[]
}

/**
 * The status of a system: its replicas, the work to be done, the documents that wait and their reasons, and the work that no replica does.
 * @example (await systemStatus(system)).problems // ['order: 12 documents due in Packing for over a minute: they wait for a slot (phaselock causes 3f9a0c1b22d4)']
 */
export async function systemStatus(system: System, request: CensusRequest = {}): Promise<SystemStatus> {
  const { causes, sources } = await causesWith(system, request)
  const { now, replicas, lifecycles: names, census, without, pauses, operations } = sources
  const live = replicas.filter((one) => one.live)
  const lifecycles = names.map((name) => {
    const running = live.filter((one) => one.lifecycles.some((own) => own.name === name))
    return statusOf(name, running.length, census.get(name), without.get(name))
  })
  const versions: Record<string, number> = {}
  for (const { version = '?' } of live) versions[version] = (versions[version] ?? 0) + 1
  const needed = causes.rows.filter((row) => !isAcknowledged(row))
  const problems = [
    ...needed.map((row) => `${causeText(row)} (phaselock causes ${row.id})`),
    ...(causes.needsYou > needed.length
      ? [`${causes.needsYou - needed.length} further causes (phaselock causes)`]
      : []),
    ...lifecycles.flatMap(uncounted),
    ...pauses.map(
      (pause) => `${pausedText(pause)} is paused by ${pause.by}${pause.reason === null ? '' : `: ${pause.reason}`}`,
    ),
  ]
  // Those that only an older version does say nothing any more.
  const duties = sources.duties.filter(({ name }) => !name.startsWith(SWEEP))
  return { now, versions, lifecycles, causes, pauses, duties, operations: openAmong(operations), problems }
}

/** A lifecycle that replicas run and of which nothing is counted. Without any replica, that is the problem. */
const uncounted = ({ lifecycle, replicas, whyNone }: LifecycleStatus): string[] =>
  whyNone !== null && replicas > 0
    ? [`${lifecycle}: its documents aren't counted, ${whyNone} (phaselock status --fresh)`]
    : []

function statusOf(lifecycle: string, replicas: number, census?: Census, whyNone?: string): LifecycleStatus {
  const phases = census?.phases ?? []
  const working = phases.filter(({ kind }) => kind === 'working')
  const ageMs = ({ oldestDueAt }: Census['phases'][number]) =>
    oldestDueAt && census ? census.at.getTime() - oldestDueAt.getTime() : 0
  return {
    ...{ lifecycle, replicas, census: census ?? null, whyNone: census ? null : (whyNone ?? null) },
    documents: sumOf(phases.map((one) => one.documents)),
    due: sumOf(working.map((one) => one.due)),
    oldestDueSeconds: Math.max(0, ...working.map(ageMs)) / 1_000,
    undated: working.reduce((sum, one) => sum + one.undated, 0),
    held: phases.reduce((sum, one) => sum + one.held, 0),
    sleeping: sumOf(working.map((one) => one.sleeping)),
    asking: sumOf(working.map((one) => one.asking)),
    parked: sumOf(phases.map((one) => one.parked)),
    failing: sumOf(working.map((one) => one.failing)),
  }
}

const MOST_OPERATIONS = 100

/** The numbers of operations that haven't ended, among the newest hundred. */
export async function operationsOpen(system: Pick<System, 'db'>): Promise<OperationsOpen> {
  const open = { limit: MOST_OPERATIONS, open: true }
  return openAmong((await listOperations({ db: system.db, models: [] }, open)).operations)
}

function openAmong(operations: readonly OperationState[]): OperationsOpen {
  const open = { running: 0, waiting: 0, parked: 0 }
  for (const { condition } of operations) {
    if (condition === 'Running') open.running++
    else if (condition === 'Parked') open.parked++
    else open.waiting++
  }
  return open
}
