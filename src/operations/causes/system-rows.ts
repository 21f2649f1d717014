import type { Duty } from '../../lock/index.js'
import { typed } from '../../options/index.js'
import { CENSUS, causeOfError, SWEEP, UNHANDLED } from '../../phases/index.js'
import { formatMs } from '../../time/index.js'
import { OPERATION_LIFECYCLE } from '../bulk/operation.js'
import type { OperationState } from '../bulk/operations.js'
import type { ReplicaState } from '../inspect/replicas.js'
import type { CauseAction, FoundCause } from './row.js'

/** What is known of replicas and of Phaselock's own work. */
export interface SystemSeen {
  /** The server's time. */
  readonly now: Date
  /** All lifecycles but that of operations. */
  readonly lifecycles: readonly string[]
  readonly replicas: readonly ReplicaState[]
  /** The lockTimeout in force, in ms, by lifecycle. */
  readonly leaseMs: ReadonlyMap<string, number>
  readonly duties: readonly Duty[]
  /** Those that haven't ended. */
  readonly operations: readonly OperationState[]
}

/** A duty is late that nobody has begun for so many of its intervals, and for this time. */
const LATE_AFTER = 3
const LATE_AFTER_MS = 60_000

const NONE = { trend: 'unknown', ids: [], versions: [] } as const
const command =
  (text: string, preview: string): (() => CauseAction) =>
  () => ({ command: text, preview })

/** The rows of replicas, operations and duties. */
export function systemRows(seen: SystemSeen): FoundCause[] {
  const { lifecycles, replicas, operations } = seen
  const live = replicas.filter((one) => one.live)
  return [
    ...(live.length === 0 && lifecycles.length > 0 ? [noReplica(seen)] : []),
    ...(live.length > 0
      ? lifecycles.filter((name) => !live.some(runs(name))).map((name) => noReplicaOf(name, seen))
      : []),
    ...unhandled(seen, live),
    ...replicas.filter((one) => !one.live).flatMap((one) => deadReplica(one, seen)),
    ...operations.flatMap((one) => stuckOperation(one, seen)),
    // If no replica is there to do a duty, that is said already.
    ...seen.duties.filter((one) => isSomeonesDuty(one, live)).flatMap((one) => badDuty(one, seen)),
  ]
}

const runs =
  (lifecycle: string) =>
  ({ lifecycles }: ReplicaState): boolean =>
    lifecycles.some(({ name }) => name === lifecycle)

/** When the last of some replicas was seen; null: there is no trace of one. */
const lastSeenOf = (replicas: readonly ReplicaState[]): Date | null =>
  replicas.reduce<Date | null>((last, { seenAt }) => (last === null || seenAt > last ? seenAt : last), null)

function noReplica({ replicas, now }: SystemSeen): FoundCause {
  const since = lastSeenOf(replicas)
  return {
    ...{ kind: 'no-replica', key: [], text: 'no replica is running', documents: null, ...NONE },
    ...{ oldest: since, firstSeen: since, lastSeen: now, action: command('phaselock start', 'phaselock replicas') },
  }
}

function noReplicaOf(lifecycle: string, { replicas, now }: SystemSeen): FoundCause {
  const since = lastSeenOf(replicas.filter(runs(lifecycle)))
  return {
    ...{ kind: 'no-replica-of', key: [], lifecycle, text: 'no live replica runs it', documents: null, ...NONE },
    ...{ oldest: since, firstSeen: since, lastSeen: now, action: command('phaselock start', 'phaselock lifecycles') },
  }
}

/** Registered lifecycles that no replica was looking after at the last check by one. */
function unhandled({ duties, lifecycles, now }: SystemSeen, live: readonly ReplicaState[]): FoundCause[] {
  const duty = duties.find(({ name }) => name === UNHANDLED)
  const names: unknown = duty?.found?.['unhandled']
  if (!Array.isArray(names)) return []
  const isSaid = (name: string) => live.length > 0 && lifecycles.includes(name)
  const left = names.map(String).filter((name) => name !== OPERATION_LIFECYCLE && !isSaid(name))
  return left.map((lifecycle) => ({
    ...{ kind: 'no-replica-of', key: [], lifecycle, documents: null, ...NONE },
    ...{ text: 'no replica has looked after it for five minutes', oldest: duty!.foundAt, firstSeen: duty!.foundAt },
    ...{ lastSeen: now, action: command('phaselock start', 'phaselock lifecycles') },
  }))
}

/** A dead replica whose leases aren't over: those of its last beat, as long as a lockTimeout after it. */
function deadReplica({ name, seenAt, lifecycles, version }: ReplicaState, { now, leaseMs }: SystemSeen): FoundCause[] {
  const ends = (lifecycle: string) => seenAt.getTime() + (leaseMs.get(lifecycle) ?? 0)
  const leased = lifecycles.filter((one) => ends(one.name) > now.getTime())
  const held = leased.reduce((sum, one) => sum + (typeof one.held === 'number' ? one.held : 0), 0)
  if (held === 0) return []
  const until = new Date(Math.max(...leased.map((one) => ends(one.name))))
  const show = `phaselock replicas ${typed(name)}`
  return [
    {
      ...{ kind: 'dead-replica', key: [name], ...NONE, documents: { n: held, about: true } },
      text: `held by ${name} at its last beat; it is dead, and others wait for its leases until ${until.toISOString()}`,
      ...{ oldest: seenAt, firstSeen: seenAt, lastSeen: now, versions: version === undefined ? [] : [version] },
      action: command(show, show),
    },
  ]
}

function stuckOperation(
  { _id, condition, problem, createdAt, expected, counts }: OperationState,
  { now }: SystemSeen,
): FoundCause[] {
  if (condition !== 'Parked' && condition !== 'Waiting') return []
  const is =
    condition === 'Parked' ? `is parked: ${problem ?? 'nobody knows why'}` : 'is unfinished, and nobody works on it'
  return [
    {
      ...{ kind: 'operation', key: [_id], ...NONE, documents: { n: Math.max(0, expected - counts.seen), about: true } },
      ...{ text: `left of operation ${_id}, which ${is}`, ids: [_id] },
      ...{ oldest: createdAt ?? null, firstSeen: createdAt ?? null, lastSeen: now },
      action: command(
        `phaselock operations ${condition === 'Parked' ? 'abort' : 'resume'} ${typed(_id)}`,
        `phaselock operations show ${typed(_id)}`,
      ),
    },
  ]
}

function isSomeonesDuty({ name }: Duty, live: readonly ReplicaState[]): boolean {
  // Only an older version sweeps: after an update no replica does.
  if (name.startsWith(SWEEP)) return false
  return name.startsWith(CENSUS) ? live.some(runs(name.slice(CENSUS.length))) : live.length > 0
}

/** A census is rare while nobody looks, whatever its duty says of the last time. */
const RARE_CENSUS_MS = 300_000

function badDuty(
  { name, everyMs: lastMs, begunAt, error, tookMs, foundAt, by }: Duty,
  { now }: SystemSeen,
): FoundCause[] {
  const everyMs = name.startsWith(CENSUS) ? Math.max(lastMs, RARE_CENSUS_MS) : lastMs
  const ageMs = now.getTime() - begunAt.getTime()
  const row = (text: string, since: Date | null, ...key: string[]): FoundCause[] => [
    {
      ...{ kind: 'duty', key: [name, ...key], text: `the duty '${name}' ${text}`, documents: null, ...NONE },
      ...{
        oldest: since,
        firstSeen: since,
        lastSeen: begunAt,
        action: command(`phaselock replicas ${typed(by)}`, 'phaselock status'),
      },
    },
  ]
  if (error !== null) return row(`failed: ${error}`, foundAt ?? begunAt, causeOfError({ message: error }).cause)
  if (ageMs > Math.max(LATE_AFTER * everyMs, LATE_AFTER_MS))
    return row(`was begun ${formatMs(ageMs)} ago, and is due each ${formatMs(everyMs)}`, begunAt)
  return tookMs === null && ageMs > Math.max(everyMs, LATE_AFTER_MS)
    ? row(`has not ended since ${formatMs(ageMs)}`, begunAt)
    : []
}
