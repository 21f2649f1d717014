import { isServerError } from '../../database/index.js'
import { type Duty, readDuties } from '../../lock/index.js'
import { numbered, typed } from '../../options/index.js'
import { SWEEP, type SweptLifecycle, UNHANDLED } from '../../phases/index.js'
import { formatMs } from '../../time/index.js'
import { OPERATION_LIFECYCLE } from '../bulk/operation.js'
import { listOperations } from '../bulk/operations.js'
import { countPhases, countWaiting } from '../inspect/count.js'
import { listReplicas, type ReplicaState } from '../inspect/replicas.js'
import { type ListedPause, pausedText } from '../pauses/change.js'
import { listPauses } from '../pauses/pause.js'
import type { System } from '../system/system.js'

const UNAUTHORIZED = 13
/** The number of its intervals after which a duty that no replica has begun is late. */
const LATE_AFTER = 3

/** The documents of one lifecycle, counted by condition. Counts are at most 10,000 for each phase. */
export interface LifecycleStatus {
  readonly lifecycle: string
  /** The number of live replicas that run it. */
  readonly replicas: number
  readonly documents: number
  readonly due: number
  /** The time since the oldest due one became due, in seconds. */
  readonly oldestDueSeconds: number
  /** The number of due ones that don't record when they became due, and count in no age; at most 1,000 for each phase. */
  readonly undated: number
  readonly held: number
  readonly sleeping: number
  /** The number of sleeping ones that wait for an answer. */
  readonly asking: number
  readonly parked: number
  /** The findings of the last sweep; undefined before the first one. */
  readonly swept: SweptLifecycle | undefined
  /** When that sweep was. */
  readonly sweptAt: Date | undefined
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
export async function systemStatus(system: System): Promise<SystemStatus> {
  const [{ replicas, now }, counts, waiting, { pauses }, duties, operations] = await Promise.all([
    listReplicas(system),
    countPhases(system),
    countWaiting(system),
    listPauses(system),
    dutiesOf(system),
    operationsOpen(system),
  ])
  const live = replicas.filter((one) => one.live)
  const sweeps = sweptBy(duties)
  const runs = (one: ReplicaState, lifecycle: string) => one.lifecycles.some(({ name }) => name === lifecycle)
  // An operation is worked on by the process that runs its command, so that mostly no replica runs this lifecycle.
  const models = system.models.filter(({ name }) => name !== OPERATION_LIFECYCLE)
  const lifecycles = models.map(({ name: lifecycle }): LifecycleStatus => {
    const own = counts.filter((one) => one.lifecycle === lifecycle)
    const sum = (of: 'documents' | 'due' | 'held' | 'sleeping' | 'asking' | 'parked') =>
      own.reduce((all, one) => all + one[of], 0)
    const working = own.filter(({ kind }) => kind === 'working')
    const due = waiting.filter((one) => one.lifecycle === lifecycle)
    return {
      ...{ lifecycle, documents: sum('documents'), held: sum('held'), sleeping: sum('sleeping') },
      replicas: live.filter((one) => runs(one, lifecycle)).length,
      due: working.reduce((all, one) => all + one.due, 0),
      oldestDueSeconds: Math.max(0, ...due.map((one) => one.oldestDueSeconds ?? 0)),
      undated: due.reduce((all, one) => all + (one.undated ?? 0), 0),
      ...{ asking: sum('asking'), parked: sum('parked') },
      swept: sweeps.get(lifecycle)?.found,
      sweptAt: sweeps.get(lifecycle)?.at,
    }
  })
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
        name.startsWith(SWEEP) ? live.some((one) => runs(one, name.slice(SWEEP.length))) : live.length > 0,
      )
      .flatMap((duty) => problemOf(duty, now)),
  ]
  return { now, versions, lifecycles, pauses, duties, operations, problems }
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

const WHY = {
  paused: 'they are paused (phaselock pauses)',
  limit: 'they wait for a slot (phaselock limits)',
  busy: 'replicas are busy, or they refuse writes (phaselock list, show)',
} as const

function problemsOf({ lifecycle, replicas, parked, swept }: LifecycleStatus, anyLive: boolean): string[] {
  const overdue = (swept?.overdue ?? []).map(
    ({ phase, documents, why }) =>
      `${lifecycle}: ${documents} ${documents === 1 ? 'document has' : 'documents have'} been due in ${phase} for over a minute: ${WHY[why]}`,
  )
  return [
    ...(anyLive && replicas === 0 ? [`${lifecycle}: no live replica runs it`] : []),
    ...overdue,
    ...(parked > 0 ? [`${lifecycle}: ${parked} parked (phaselock list ${typed(lifecycle)} --parked)`] : []),
  ]
}

function problemOf({ name, everyMs, begunAt, error, tookMs }: Duty, now: Date): string[] {
  const ageMs = now.getTime() - begunAt.getTime()
  if (error !== null) return [`the duty '${name}' failed: ${error}`]
  if (ageMs > LATE_AFTER * everyMs)
    return [`the duty '${name}' was begun ${formatMs(ageMs)} ago, and is due each ${formatMs(everyMs)}`]
  return tookMs === null && ageMs > everyMs ? [`the duty '${name}' has not ended since ${formatMs(ageMs)}`] : []
}

/** The duties; a role of an earlier version can't read them. */
const dutiesOf = ({ db }: System): Promise<readonly Duty[]> =>
  readDuties(db).then(
    ({ duties }) => duties,
    (error: unknown) => (isServerError(error, UNAUTHORIZED) ? [] : Promise.reject(error)),
  )

/** The findings of the last sweep of each lifecycle, without those that were changed by hand. */
function sweptBy(
  duties: readonly Duty[],
): Map<string, { readonly found: SweptLifecycle; readonly at: Date | undefined }> {
  const swept = new Map<string, { readonly found: SweptLifecycle; readonly at: Date | undefined }>()
  for (const { name, found, foundAt } of duties) {
    const { lifecycle, overdue, waiting } = (found ?? {}) as Partial<SweptLifecycle>
    if (!name.startsWith(SWEEP) || lifecycle !== name.slice(SWEEP.length)) continue
    if (Array.isArray(overdue) && Array.isArray(waiting))
      swept.set(lifecycle, { found: found as SweptLifecycle, at: foundAt ?? undefined })
  }
  return swept
}

/** Lifecycles that no replica was looking after at the last check by a replica. */
function unhandledBy(duties: readonly Duty[]): string[] {
  const { unhandled } = duties.find(({ name }) => name === UNHANDLED)?.found ?? {}
  return Array.isArray(unhandled) ? unhandled.map(String).filter((name) => name !== OPERATION_LIFECYCLE) : []
}

/** The findings of the last sweeps, and all duties. */
export interface LastSweep {
  readonly lifecycles: readonly SweptLifecycle[]
  readonly duties: readonly Duty[]
  /** The server's time; undefined if there are no duties. */
  readonly now?: Date | undefined
}

/** Reads the findings of the last sweeps of a database. */
export async function lastSweep(db: System['db']): Promise<LastSweep> {
  const { duties, now } = await readDuties(db)
  return { lifecycles: [...sweptBy(duties).values()].map(({ found }) => found), duties, now }
}
