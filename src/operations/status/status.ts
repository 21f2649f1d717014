import { isServerError } from '../../database/index.js'
import { type Duty, readDuties } from '../../lock/index.js'
import { numbered, typed } from '../../options/index.js'
import { CENSUS, type Census, type Count, SWEEP, sumOf, UNHANDLED } from '../../phases/index.js'
import { formatMs } from '../../time/index.js'
import { OPERATION_LIFECYCLE } from '../bulk/operation.js'
import { listOperations } from '../bulk/operations.js'
import { type CensusRequest, censusFor } from '../inspect/count.js'
import { listReplicas, type ReplicaState } from '../inspect/replicas.js'
import { type ListedPause, pausedText } from '../pauses/change.js'
import { listPauses } from '../pauses/pause.js'
import type { System } from '../system/system.js'
import { censusProblems } from './census-problems.js'

const UNAUTHORIZED = 13
/** The number of its intervals after which a duty that no replica has begun is late. */
const LATE_AFTER = 3

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
  readonly pauses: readonly ListedPause[]
  readonly duties: readonly Duty[]
  /** Operations on many documents that haven't ended; at most 100. */
  readonly operations: OperationsOpen
  /** The problems that a person should look at, in sentences; empty if there are none. */
  readonly problems: readonly string[]
}

/**
 * The status of a system: its replicas, the work to be done, the documents that wait and their reasons, and the work that no replica does.
 * @example (await systemStatus(system)).problems // ['order: 12 documents have been due in Packing for over a minute: they wait for a slot ...']
 */
export async function systemStatus(system: System, request: CensusRequest = {}): Promise<SystemStatus> {
  // An operation is worked on by the process that runs its command, so that mostly no replica runs this lifecycle.
  const models = system.models.filter(({ name }) => name !== OPERATION_LIFECYCLE)
  const [{ replicas }, { census, without, now }, { pauses }, duties, operations] = await Promise.all([
    listReplicas(system),
    censusFor({ ...system, models }, request),
    listPauses(system),
    dutiesOf(system),
    operationsOpen(system),
  ])
  const live = replicas.filter((one) => one.live)
  const runs = (one: ReplicaState, lifecycle: string) => one.lifecycles.some(({ name }) => name === lifecycle)
  const lifecycles = models.map(({ name }) =>
    statusOf(name, live.filter((one) => runs(one, name)).length, census.get(name), without.get(name)),
  )
  const versions: Record<string, number> = {}
  for (const { version = '?' } of live) versions[version] = (versions[version] ?? 0) + 1
  const dead = replicas.filter((one) => !one.live && (one.leased?.length ?? 0) > 0)
  const problems = [
    ...(live.length === 0 && models.length > 0 ? ['no replica is running (phaselock start)'] : []),
    ...dead.map(
      ({ name, leased = [] }) =>
        `${name} is dead and has ${numbered(leased.length, 'document until its lease ends', 'documents until their leases end')} (phaselock replicas ${typed(name)})`,
    ),
    ...lifecycles.flatMap((one) => problemsOf(one, live.length > 0)),
    ...unhandledBy(duties).map(
      (name) => `${name}: no replica has looked after it for five minutes (phaselock lifecycles)`,
    ),
    ...pauses.map(
      (pause) => `${pausedText(pause)} is paused by ${pause.by}${pause.reason === null ? '' : `: ${pause.reason}`}`,
    ),
    ...problemsOfOperations(operations),
    // If no replica is there to do a duty, that is reported already.
    ...duties
      .filter(({ name }) =>
        name.startsWith(CENSUS) ? live.some((one) => runs(one, name.slice(CENSUS.length))) : live.length > 0,
      )
      .flatMap((duty) => problemOf(duty, now)),
  ]
  return { now, versions, lifecycles, pauses, duties, operations, problems }
}

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
  const open = { running: 0, waiting: 0, parked: 0 }
  const { operations } = await listOperations({ db: system.db, models: [] }, { limit: MOST_OPERATIONS, open: true })
  for (const { condition } of operations) {
    if (condition === 'Running') open.running++
    else if (condition === 'Parked') open.parked++
    else open.waiting++
  }
  return open
}

function problemsOfOperations({ waiting, parked }: OperationsOpen): string[] {
  const told = (n: number, what: string) =>
    n > 0 ? [`${n} ${n === 1 ? 'operation' : 'operations'} ${what} (phaselock operations)`] : []
  return [...told(parked, 'parked'), ...told(waiting, 'unfinished, and nobody works on them now')]
}

function problemsOf({ lifecycle, replicas, census, whyNone }: LifecycleStatus, anyLive: boolean): string[] {
  return [
    ...(anyLive && replicas === 0 ? [`${lifecycle}: no live replica runs it`] : []),
    // Without any replica, that is the problem.
    ...(whyNone !== null && replicas > 0
      ? [`${lifecycle}: its documents aren't counted, ${whyNone} (phaselock status --fresh)`]
      : []),
    ...(census ? censusProblems(census) : []),
  ]
}

/** A census is rare while nobody looks, whatever its duty says of the last time. */
const RARE_CENSUS_MS = 300_000

function problemOf({ name, everyMs: lastMs, begunAt, error, tookMs }: Duty, now: Date): string[] {
  const everyMs = name.startsWith(CENSUS) ? Math.max(lastMs, RARE_CENSUS_MS) : lastMs
  const ageMs = now.getTime() - begunAt.getTime()
  if (error !== null) return [`the duty '${name}' failed: ${error}`]
  if (ageMs > LATE_AFTER * everyMs)
    return [`the duty '${name}' was begun ${formatMs(ageMs)} ago, and is due each ${formatMs(everyMs)}`]
  return tookMs === null && ageMs > everyMs ? [`the duty '${name}' has not ended since ${formatMs(ageMs)}`] : []
}

/** The duties, without those that only an older version does; a role of an earlier version can't read them. */
const dutiesOf = ({ db }: System): Promise<readonly Duty[]> =>
  readDuties(db).then(
    ({ duties }) => duties.filter(({ name }) => !name.startsWith(SWEEP)),
    (error: unknown) => (isServerError(error, UNAUTHORIZED) ? [] : Promise.reject(error)),
  )

/** Lifecycles that no replica was looking after at the last check by a replica. */
function unhandledBy(duties: readonly Duty[]): string[] {
  const { unhandled } = duties.find(({ name }) => name === UNHANDLED)?.found ?? {}
  return Array.isArray(unhandled) ? unhandled.map(String).filter((name) => name !== OPERATION_LIFECYCLE) : []
}
