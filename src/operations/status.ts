import { isServerError } from '../database/index.js'
import { type Duty, readDuties } from '../lock/index.js'
import type { SweepFound, SweptLifecycle } from '../phases/index.js'
import { formatMs } from '../time/index.js'
import { countPhases, countWaiting } from './count.js'
import { type ListedPause, listPauses, pausedText } from './pause.js'
import { listReplicas } from './replicas.js'
import type { System } from './system.js'

const UNAUTHORIZED = 13
const SWEEP = 'sweep'
/** A duty that nobody has begun for so many of its intervals. */
const LATE_AFTER = 3

/** What the documents of one lifecycle do. Counts are at most 10,000 for each phase. */
export interface LifecycleStatus {
  readonly lifecycle: string
  /** Live replicas that run it. */
  readonly replicas: number
  readonly documents: number
  readonly due: number
  /** How long the oldest due one has been due, in seconds. */
  readonly oldestDueSeconds: number
  readonly held: number
  readonly sleeping: number
  /** Those of the sleeping ones that wait for an answer. */
  readonly asking: number
  readonly parked: number
  /** As the last sweep has found it: undefined where none has. */
  readonly swept: SweptLifecycle | undefined
}

/** A whole system at a glance. Times are the server's. */
export interface SystemStatus {
  readonly now: Date
  /** Live replicas by version; '?': it doesn't say. */
  readonly versions: Readonly<Record<string, number>>
  readonly lifecycles: readonly LifecycleStatus[]
  readonly pauses: readonly ListedPause[]
  readonly duties: readonly Duty[]
  /** When the counts of the sweep are from; undefined: there are none. */
  readonly sweptAt: Date | undefined
  /** What a person should look at, in sentences; empty: nothing. */
  readonly problems: readonly string[]
}

/**
 * How a system is: who works, what there is to do, what waits for what, what nobody does.
 * @example (await systemStatus(system)).problems // ['order: 12 documents have been due in Packing for over a minute: they wait for a slot ...']
 */
export async function systemStatus(system: System): Promise<SystemStatus> {
  const [{ replicas, now }, counts, waiting, { pauses }, duties] = await Promise.all([
    listReplicas(system),
    countPhases(system),
    countWaiting(system),
    listPauses(system),
    dutiesOf(system),
  ])
  const live = replicas.filter((one) => one.live)
  const sweep = duties.find(({ name }) => name === SWEEP)
  const swept = foundBy(sweep)
  const lifecycles = system.models.map(({ name: lifecycle }): LifecycleStatus => {
    const own = counts.filter((one) => one.lifecycle === lifecycle)
    const sum = (of: 'documents' | 'due' | 'held' | 'sleeping' | 'asking' | 'parked') =>
      own.reduce((all, one) => all + one[of], 0)
    const working = own.filter(({ kind }) => kind === 'working')
    const ages = waiting.filter((one) => one.lifecycle === lifecycle).map((one) => one.oldestDueSeconds ?? 0)
    return {
      ...{ lifecycle, documents: sum('documents'), held: sum('held'), sleeping: sum('sleeping') },
      replicas: live.filter((one) => one.lifecycles.some(({ name }) => name === lifecycle)).length,
      due: working.reduce((all, one) => all + one.due, 0),
      oldestDueSeconds: Math.max(0, ...ages),
      ...{ asking: sum('asking'), parked: sum('parked') },
      swept: swept?.lifecycles.find((one) => one.lifecycle === lifecycle),
    }
  })
  const versions: Record<string, number> = {}
  for (const { version = '?' } of live) versions[version] = (versions[version] ?? 0) + 1
  const dead = replicas.filter((one) => !one.live && (one.leased?.length ?? 0) > 0)
  const problems = [
    ...(live.length === 0 && system.models.length > 0 ? ['no replica is running (phaselock start)'] : []),
    ...dead.map(
      ({ name, leased = [] }) =>
        `${name} is dead and has ${leased.length} documents until their leases end (phaselock replicas ${name})`,
    ),
    ...lifecycles.flatMap((one) => problemsOf(one, live.length > 0)),
    ...(swept?.unhandled ?? []).map((name) => `${name}: no replica has looked after it for five minutes`),
    ...pauses.map(
      (pause) => `${pausedText(pause)} is paused by ${pause.by}${pause.reason === null ? '' : `: ${pause.reason}`}`,
    ),
    ...duties.flatMap((duty) => problemOf(duty, now)),
  ]
  return { now, versions, lifecycles, pauses, duties, sweptAt: sweep?.foundAt ?? undefined, problems }
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
    ...(parked > 0 ? [`${lifecycle}: ${parked} parked (phaselock list ${lifecycle} --parked)`] : []),
  ]
}

function problemOf({ name, everyMs, begunAt, error, tookMs }: Duty, now: Date): string[] {
  const ageMs = now.getTime() - begunAt.getTime()
  if (error !== null) return [`the duty '${name}' failed: ${error}`]
  if (ageMs > LATE_AFTER * everyMs)
    return [`the duty '${name}' was begun ${formatMs(ageMs)} ago, and is due each ${formatMs(everyMs)}`]
  return tookMs === null && ageMs > everyMs ? [`the duty '${name}' has not ended since ${formatMs(ageMs)}`] : []
}

/** A role of an earlier version can't read them. */
const dutiesOf = ({ db }: System): Promise<readonly Duty[]> =>
  readDuties(db).then(
    ({ duties }) => duties,
    (error: unknown) => (isServerError(error, UNAUTHORIZED) ? [] : Promise.reject(error)),
  )

/** What the last sweep has found; undefined: none has ended, or a person has changed it. */
function foundBy(duty: Duty | undefined): SweepFound | undefined {
  const { lifecycles, unhandled } = (duty?.found ?? {}) as Partial<SweepFound>
  if (!Array.isArray(lifecycles) || !Array.isArray(unhandled)) return undefined
  const isSound = ({ lifecycle, overdue, waiting }: Partial<SweptLifecycle>) =>
    typeof lifecycle === 'string' && Array.isArray(overdue) && Array.isArray(waiting)
  return { lifecycles: lifecycles.filter((one) => isSound(Object(one))), unhandled: unhandled.map(String) }
}

/** What the last sweep has found, and all duties. */
export interface LastSweep {
  /** Undefined: none has ended yet. */
  readonly found?: SweepFound | undefined
  readonly duties: readonly Duty[]
  /** The server's time; undefined: there are no duties. */
  readonly now?: Date | undefined
}

/** Reads what the last sweep of a database has found. */
export async function lastSweep(db: System['db']): Promise<LastSweep> {
  const { duties, now } = await readDuties(db)
  return { found: foundBy(duties.find(({ name }) => name === SWEEP)), duties, now }
}
