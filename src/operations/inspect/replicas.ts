import type { Document } from 'mongodb'
import { isServerError } from '../../database/index.js'
import {
  isValid,
  leasesOf,
  MISSED_BEATS,
  type PresentReplica,
  parseToken,
  REPLICAS_COLLECTION,
  type ReplicaReport,
  type RunLifecycle,
  readLockTimeouts,
  readOwnFields,
  reportsIn,
} from '../../lock/index.js'
import { claimedPhases } from '../../phases/index.js'
import { durationMs } from '../../time/index.js'
import { NotFound } from '../system/errors.js'
import type { System } from '../system/system.js'
import { type Entry, readEntries } from './entries.js'

/** The maximum number of leased documents that are read per lifecycle. */
const MOST_LEASED = 1_000
const DEAD_AFTER = '30s'
const UNAUTHORIZED = 13
const MOST_MS = 5_000

/** A lifecycle of a replica; only the name is known if the replica has no document in `phaselock.replicas`. */
export type LifecycleOfReplica = Pick<RunLifecycle, 'name'> & Partial<RunLifecycle>

/** A document whose lease a replica has not released, and that no other replica has taken since. */
export interface LeasedDocument {
  readonly lifecycle: string
  readonly _id: unknown
  readonly phase: string
  /** When the lease ends, or has ended. */
  readonly until: Date
}

/** A replica as it has announced itself; one that is ticked by its caller doesn't. Times are the server's. */
export interface ReplicaState {
  /** The name; `lockedBy` of the documents that it holds begins with it. */
  readonly name: string
  /** True if it was seen recently, and has not stopped since. */
  readonly live: boolean
  readonly seenAt: Date
  readonly lifecycles: readonly LifecycleOfReplica[]
  /**
   * This and the following fields are absent if it has no document in `phaselock.replicas`: it is of an older version, or lacks the rights.
   */
  readonly startedAt?: Date
  /** The version of the package. */
  readonly version?: string
  /** The version of the app that it runs in. */
  readonly appVersion?: string
  readonly host?: string
  readonly pid?: number
  /** The name of its pod, if it runs in Kubernetes. */
  readonly pod?: string
  /** The longest time that its event loop was blocked, within the ten seconds before `seenAt`. */
  readonly loopMs?: number
  /** The duration of its last tick. */
  readonly tickMs?: number
  /** The slots of limits that it has leased, and those of them that it uses. */
  readonly limits?: NonNullable<ReplicaReport['limits']>
  /** The documents that it still leases, read if it is dead or was asked for by name: at most 1,000 of each lifecycle. */
  readonly leased?: readonly LeasedDocument[]
}

export interface ReplicasRequest {
  /** The name of one replica. Default: all. */
  readonly name?: string | undefined
  /** The time without a sign of life after which it counts as dead: a duration. Default `30s`. */
  readonly deadAfter?: string | undefined
}

/**
 * The replicas that share the work, by name; a dead one with the documents that it still leases. A replica that has stopped isn't listed;
 * one that was killed is listed for a day at most.
 * @example await listReplicas(system) // { replicas: [{ name: 'api-1~5f3a9c', live: true, version: '1.2.0', lifecycles: [...], ... }], now }
 * @throws NotFound if no replica has the given name, InvalidDuration
 */
export async function listReplicas(
  system: System,
  { name, deadAfter = DEAD_AFTER }: ReplicasRequest = {},
): Promise<{ readonly replicas: readonly ReplicaState[]; readonly now: Date }> {
  const { states, now } = await replicaStates(system, deadAfter)
  const asked = states.filter((state) => name === undefined || state.name === name)
  if (name !== undefined && asked.length === 0) {
    const problem = `no replica ${name}: it has stopped, or was killed more than a day ago`
    throw new NotFound(problem, { reason: 'noReplica', name }, 'see: phaselock replicas')
  }
  const leased = await leasedBy(
    system,
    asked.filter(({ live }) => !live || name !== undefined),
    now,
  )
  const replicas = asked.map((state) => ({
    ...state,
    ...(leased.has(state.name) && { leased: leased.get(state.name)! }),
  }))
  return { replicas, now }
}

/** The replica that a token names; undefined if it isn't listed. */
export async function holderNamedBy(system: System, token: string): Promise<ReplicaState | undefined> {
  const name = parseToken(token)?.replica
  const { states } = await replicaStates(system, DEAD_AFTER)
  return states.find((state) => state.name === name)
}

/**
 * The same without the leased documents.
 * @param entries those of its lifecycles. Default: they are read
 */
export async function replicaStates(
  system: System,
  deadAfter: string,
  entries?: readonly Entry[],
): Promise<{ readonly states: readonly ReplicaState[]; readonly now: Date }> {
  // Before the reads: if it throws, no read must be left running without a caller that waits for it.
  const deadAfterMs = durationMs(deadAfter)
  const [reports, documents] = await Promise.all([announced(system, entries), described(system, deadAfterMs)])
  const withDocument = new Set(documents.states.map(({ name }) => name))
  const states = [...documents.states, ...reports.states.filter(({ name }) => !withDocument.has(name))]
  return { states: states.sort((a, b) => (a.name < b.name ? -1 : 1)), now: documents.now ?? reports.now ?? new Date(0) }
}

/** Replicas as they were read, with the server's time. */
export interface Read {
  readonly states: readonly ReplicaState[]
  readonly now: Date | undefined
}

/**
 * Reads the entries that replicas share the work by: the only trace of one of an older version, or without the rights on the collection of
 * replicas.
 */
async function announced({ db, models }: System, known?: readonly Entry[]): Promise<Read> {
  const names = models.map(({ name }) => name)
  const entries = (known ?? (await readEntries(db, names))).filter(({ _id }) => names.includes(_id))
  const found = new Map<string, ReplicaState>()
  for (const { _id, replicas, live } of entries) {
    // A user may have stored anything there.
    for (const { name, seenAt } of Array.isArray(replicas) ? replicas.filter(isReport) : []) {
      const before = found.get(name)
      found.set(name, {
        name,
        lifecycles: [...(before?.lifecycles ?? []), { name: String(_id) }],
        seenAt: before && before.seenAt > seenAt ? before.seenAt : seenAt,
        live: before?.live === true || live.some((one: PresentReplica) => one.name === name),
      })
    }
  }
  return { states: [...found.values()], now: entries[0]?.['now'] }
}

const isReport = (one: unknown): one is { name: string; seenAt: Date } => {
  const { name, seenAt } = (one ?? {}) as Record<string, unknown>
  return typeof name === 'string' && seenAt instanceof Date
}

const described = (system: System, deadAfterMs: number): Promise<Read> =>
  replicasDescribed(system, deadAfterMs).catch((error: unknown) => {
    // A role of an earlier version.
    if (isServerError(error, UNAUTHORIZED)) return { states: [], now: undefined }
    throw error
  })

/**
 * Reads what replicas of these lifecycles say of themselves.
 * @throws MongoServerError 13 without the right to read that
 */
export async function replicasDescribed(
  { db, models }: Pick<System, 'db' | 'models'>,
  deadAfterMs = durationMs(DEAD_AFTER),
): Promise<Read> {
  const collection = db.collection<{ _id: string }>(REPLICAS_COLLECTION)
  // The flow is by far the largest part, and isn't needed here.
  const pipeline = [{ $unset: 'flow' }, { $project: { _id: 0, document: '$$ROOT', now: '$$NOW' } }]
  const rows = await readOwnFields((how) => collection.aggregate(pipeline, { maxTimeMS: MOST_MS, ...how }).toArray())
  const known = new Set(models.map(({ name }) => name))
  const states = rows.flatMap(({ document, now }) => {
    const state = stateOf(document, now, deadAfterMs)
    return state?.lifecycles.some(({ name }) => known.has(name)) ? [state] : []
  })
  return { states, now: rows[0]?.['now'] }
}

/** The state of a replica's document; undefined if a user has inserted or changed it. */
function stateOf(document: Document, now: Date, deadAfterMs: number): ReplicaState | undefined {
  const { _id: name, seenAt, lifecycles } = document
  const everyMs = isNumber(document['everyMs']) ? document['everyMs'] : 0
  if (typeof name !== 'string' || !isDate(seenAt) || !Array.isArray(lifecycles)) return undefined
  const fields = {
    ...{ startedAt: isDate, version: isText, appVersion: isText, host: isText, pid: isNumber, pod: isText },
    ...{ loopMs: isNumber, tickMs: isNumber },
  }
  const limits = Array.isArray(document['limits']) ? document['limits'].filter(isLeaseOfLimit) : []
  const usable = Object.entries(fields).filter(([field, is]) => is(document[field]))
  return {
    name,
    // A time that is ahead means that it died before the clock stepped back.
    live: Math.abs(now.getTime() - seenAt.getTime()) < Math.max(deadAfterMs, MISSED_BEATS * everyMs),
    seenAt,
    lifecycles: reportsIn(lifecycles),
    ...Object.fromEntries(usable.map(([field]) => [field, document[field]])),
    ...(limits.length > 0 && { limits }),
  }
}

const isDate = (value: unknown): value is Date => value instanceof Date && isValid(value)
const isText = (value: unknown): value is string => typeof value === 'string'
const isNumber = (value: unknown): value is number => typeof value === 'number'
const isLeaseOfLimit = (one: unknown): one is NonNullable<ReplicaReport['limits']>[number] => {
  const { limit, leased, used } = Object(one) as Document
  return isText(limit) && isNumber(leased) && isNumber(used)
}

/**
 * Reads the leased documents of replicas by the held range of the claim index. It takes one query per lifecycle, with the names of all the
 * replicas.
 */
async function leasedBy(
  { db, models }: System,
  replicas: readonly ReplicaState[],
  now: Date,
): Promise<ReadonlyMap<string, LeasedDocument[]>> {
  const leased = new Map(replicas.map(({ name }): [string, LeasedDocument[]] => [name, []]))
  if (replicas.length === 0) return leased
  const lockTimeouts = await readLockTimeouts(
    db,
    models.map(({ name }) => name),
  )
  const reading = models.map(async (model) => {
    const dueMs = lockTimeouts.get(model.name)?.dueMs ?? model.settings.lockTimeoutMs
    const holders = replicas.filter(({ lifecycles }) => lifecycles.some(({ name }) => name === model.name))
    if (holders.length === 0) return
    const since = Math.min(...holders.map(({ seenAt }) => seenAt.getTime()), now.getTime()) - dueMs
    const found = await leasesOf(db.collection<Document>(model.collection), {
      replicas: holders.map(({ name }) => name),
      phases: claimedPhases(model),
      ...{ since: new Date(since), now, lockTimeoutMs: dueMs, limit: MOST_LEASED },
    })
    for (const { replica, ...document } of found) leased.get(replica)?.push({ lifecycle: model.name, ...document })
  })
  await Promise.all(reading)
  return leased
}
