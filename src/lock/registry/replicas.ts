import type { Collection, Db, Document } from 'mongodb'
import { isServerError } from '../../database/index.js'
import { arrayAt, isDate, literal } from '../terms/terms.js'
import { type FlowMinute, MINUTES_IN_BEAT } from './flow-sums.js'

/** The interval at which a replica that ticks on its own says so in `replicas` of `phaselock.lifecycles`. */
export const PRESENT_EVERY_MS = 50_000
/** The time that it counts as live after that: one of its reports may be lost. */
const PRESENT_FOR_MS = 110_000

const known = arrayAt('$replicas')
/** True for a recent report. One from the future, as after a step of the clock, doesn't count either: live replicas report again. */
const isRecent = {
  $and: [
    { $gt: ['$$this.seenAt', { $subtract: ['$$NOW', PRESENT_FOR_MS] }] },
    { $lt: ['$$this.seenAt', { $add: ['$$NOW', PRESENT_FOR_MS] }] },
  ],
}

/** A live replica of a lifecycle, as it is stored: a person may have put anything there. */
export interface PresentReplica {
  readonly name: string
  /** Those whose documents it takes now. Absent, or no list: all; a replica of an older version doesn't say. */
  readonly phases?: readonly string[]
  /** Of the package; absent: an older one doesn't say. */
  readonly version?: string
}

/** A lifecycle's live replicas, as an expression over its document. */
export const PRESENT_REPLICAS: Document = {
  $map: {
    input: { $filter: { input: known, cond: isRecent } },
    in: { name: '$$this.name', phases: '$$this.phases', version: '$$this.version' },
  },
}

/** The time when any of them was last seen, or last looked; in the future if the server's clock has stepped back since. */
export const LAST_SEEN: Document = { $max: ['$handledAt', { $max: { $map: { input: known, in: '$$this.seenAt' } } }] }

type Lifecycles = Collection<Document & { _id: string }>

/**
 * Reports that a replica looks after these lifecycles, and forgets those that haven't reported for long.
 * @param takes by lifecycle, the phases whose documents it takes now
 */
export async function sayPresent(
  lifecycles: Lifecycles,
  takes: ReadonlyMap<string, readonly string[]>,
  { name, version }: Pick<PresentReplica, 'name' | 'version'>,
): Promise<void> {
  const ids = [...takes.keys()]
  const others = { $filter: { input: known, cond: { $and: [isRecent, { $ne: ['$$this.name', literal(name)] }] } } }
  const phases = { $arrayElemAt: [literal([...takes.values()]), { $indexOfArray: [literal(ids), '$_id'] }] }
  const replicas = {
    $concatArrays: [
      others,
      [{ name: literal(name), seenAt: '$$NOW', phases, ...(version && { version: literal(version) }) }],
    ],
  }
  await lifecycles.updateMany({ _id: { $in: ids } }, [{ $set: { handledAt: '$$NOW', replicas } }])
}

/** Reports that a replica no longer does, so that its share goes to the others immediately. */
export async function sayGone(lifecycles: Lifecycles, ids: readonly string[], name: string): Promise<void> {
  await lifecycles.updateMany({ _id: { $in: [...ids] } }, { $pull: { replicas: { name } } } as Document)
}

/** Holds a document for each start of a replica, for people. Replicas themselves go by `phaselock.lifecycles`. */
export const REPLICAS_COLLECTION = 'phaselock.replicas'

/** One that was killed is shown for this long, and no more than {@link MOST_DEAD} of them. */
const KEPT_MS = 24 * 3_600_000
const MOST_DEAD = 100
/** One that still runs writes its document again if that was removed too early. */
const SURELY_DEAD_AFTER_MS = 60_000
/** The number of beats that may be missing before a replica counts as dead. */
export const MISSED_BEATS = 3

/** A replica's report about one of its lifecycles. */
export interface RunLifecycle {
  readonly name: string
  /** The digest of its definition: {@link KnownGraph}. Absent: it is of an older version. */
  readonly graph?: string | undefined
  /** The phases that it has handlers for. */
  readonly phases: readonly string[]
  /** The number of steps that it runs at the same time. */
  readonly places: number
  /** The number of these that are free. */
  readonly free: number
  /** The number of documents that it holds, in its places or waiting for one. */
  readonly held: number
  /** The same by phase, where it holds any; absent: an older version doesn't say. */
  readonly heldIn?: readonly { readonly phase: string; readonly n: number }[]
  /** For a replica that works only on some: the names of those that it can work on, such as the tasks of schedules. */
  readonly knows?: readonly string[]
}

/** A replica's report about itself. */
export interface ReplicaReport {
  /** Of the package. */
  readonly version?: string | undefined
  /** Of the app that it runs in. */
  readonly appVersion?: string | undefined
  readonly host: string
  readonly pid: number
  /** The pod that it runs in on Kubernetes. */
  readonly pod?: string | undefined
  /** The interval of these reports, in milliseconds. */
  readonly everyMs: number
  readonly lifecycles: readonly RunLifecycle[]
  /** Slots of limits that it has leased; absent: none. */
  readonly limits?: readonly { readonly limit: string; readonly leased: number; readonly used: number }[] | undefined
  /** The longest time without a turn of its event loop, since its last beat; absent where that isn't watched. */
  readonly loopMs?: number | undefined
  /** The time that its last tick took. */
  readonly tickMs?: number | undefined
}

type Replicas = Collection<Document & { _id: string }>

/** The time limit of a beat: one that meets a locked collection must not keep its connection. */
const MOST_MS = 5_000

/**
 * Writes a replica's document, whatever it holds: one that was removed, or edited by a person, is restored.
 * @param minutes of its flow, that its document doesn't have yet; the newest few stay there until a duty has copied them
 */
export async function beat(
  replicas: Replicas,
  name: string,
  report: ReplicaReport,
  upMs: number,
  minutes: readonly FlowMinute[] = [],
): Promise<void> {
  const own = Object.entries(report).filter(([, value]) => value !== undefined)
  const fields = {
    ...Object.fromEntries(own.map(([field, value]) => [field, literal(value)])),
    startedAt: { $cond: [isDate('$startedAt'), '$startedAt', { $subtract: ['$$NOW', Math.round(upMs)] }] },
    seenAt: '$$NOW',
    ...(minutes.length > 0 && { flow: flowWith(minutes) }),
  }
  await replicas.updateOne({ _id: name }, [{ $set: fields }], { upsert: true, maxTimeMS: MOST_MS })
}

const flowWith = (minutes: readonly FlowMinute[]): Document => ({
  $slice: [{ $concatArrays: [arrayAt('$flow'), literal(minutes)] }, -MINUTES_IN_BEAT],
})

/** Adds the last minutes of a replica that has stopped to its document, for the duty that copies them. It is no beat. */
export async function leaveFlow(replicas: Replicas, name: string, minutes: readonly FlowMinute[]): Promise<void> {
  await replicas.updateOne({ _id: name }, [{ $set: { flow: flowWith(minutes) } }], { maxTimeMS: MOST_MS })
}

/** Removes a replica's document: it has stopped. */
export async function endBeats(replicas: Replicas, name: string): Promise<void> {
  await replicas.deleteOne({ _id: name }, { maxTimeMS: MOST_MS })
}

/** The age of a replica's last beat. One of the future, from before a step back of the clock, also counts as old. */
const ageMs = { $abs: { $subtract: ['$$NOW', '$seenAt'] } }
const liveForMs = { $multiply: [{ $cond: [{ $isNumber: '$everyMs' }, '$everyMs', 0] }, MISSED_BEATS] }

/** Removes the documents of replicas that are dead for long, or beyond the newest of many, so that endless restarts leave a bounded number. */
export async function forgetDead(replicas: Replicas): Promise<void> {
  const isDead = { $and: [isDate('$seenAt'), { $gt: [ageMs, { $max: [SURELY_DEAD_AFTER_MS, liveForMs] }] }] }
  const dead = await replicas
    .aggregate(
      [{ $match: { $expr: isDead } }, { $sort: { seenAt: -1 } }, { $project: { isOld: { $gt: [ageMs, KEPT_MS] } } }],
      { maxTimeMS: MOST_MS },
    )
    .toArray()
  const ids = dead.filter(({ isOld }, i) => isOld || i >= MOST_DEAD).map(({ _id }) => _id)
  if (ids.length === 0) return
  await replicas.deleteMany({ _id: { $in: ids }, $expr: isDead }, { maxTimeMS: MOST_MS })
}

/** True for a replica whose beats come. */
const isLive = { $cond: [isDate('$seenAt'), { $lte: [ageMs, liveForMs] }, false] }

/**
 * What the live replicas report of their lifecycles. Empty where this process may not read it. A person may have put anything there: what isn't a
 * report is left out.
 */
export async function liveReports(db: Db): Promise<readonly RunLifecycle[]> {
  const live = await db
    .collection(REPLICAS_COLLECTION)
    .aggregate([{ $match: { $expr: isLive } }, { $project: { lifecycles: 1 } }], { maxTimeMS: MOST_MS })
    .toArray()
    .catch((error: unknown) => (isServerError(error) ? [] : Promise.reject(error)))
  return live.flatMap(({ lifecycles }) => reportsIn(lifecycles)).filter((one) => Array.isArray(one.phases))
}

/** Reads what a replica's document says of its lifecycles: what isn't a report is left out, and so is a field that isn't one. */
export function reportsIn(lifecycles: unknown): RunLifecycle[] {
  const reports = (Array.isArray(lifecycles) ? lifecycles : []).filter((one) => typeof one?.name === 'string')
  return reports.map((one) => {
    const fields = Object.entries(one).filter(([field, value]) => FIELDS[field]?.(value) ?? true)
    return Object.fromEntries(fields) as unknown as RunLifecycle
  })
}

const isText = (value: unknown): boolean => typeof value === 'string'
const isNumber = (value: unknown): boolean => typeof value === 'number'
const isTexts = (value: unknown): boolean => Array.isArray(value) && value.every(isText)
const FIELDS: Readonly<Record<string, (value: unknown) => boolean>> = {
  ...{ graph: isText, phases: isTexts, knows: isTexts, places: isNumber, free: isNumber, held: isNumber },
  heldIn: (value) => Array.isArray(value) && value.every((one) => isText(one?.phase) && isNumber(one.n)),
}

/**
 * Returns those of these names that no live replica of a lifecycle knows, by the replicas' own reports. Returns none if they can't be determined:
 * a replica of an older version doesn't report them, or this process may not read the reports.
 */
export async function namesNobodyKnows(
  db: Db,
  lifecycle: string,
  names: readonly string[],
): Promise<readonly string[]> {
  const live = await db
    .collection(REPLICAS_COLLECTION)
    .aggregate([{ $match: { 'lifecycles.name': lifecycle, $expr: isLive } }, { $project: { lifecycles: 1 } }], {
      maxTimeMS: MOST_MS,
    })
    .toArray()
    .catch(() => undefined)
  const own = live?.flatMap(({ lifecycles }) => reportsIn(lifecycles).filter(({ name }) => name === lifecycle))
  if (!own || own.some(({ knows }) => !Array.isArray(knows))) return []
  return names.filter((name) => !own.some(({ knows }) => knows!.includes(name)))
}
