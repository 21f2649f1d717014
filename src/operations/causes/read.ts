import type { Db, Document } from 'mongodb'
import { isServerError, protocolCollection } from '../../database/index.js'
import { isInForce, lockTimeoutAt, readDuties, readOwnFields, storedPauses } from '../../lock/index.js'
import { AUDIT_COLLECTION, type Census } from '../../phases/index.js'
import { OPERATION_LIFECYCLE, OPERATIONS_COLLECTION } from '../bulk/operation.js'
import { listOperations } from '../bulk/operations.js'
import { type CensusRequest, censusFor } from '../inspect/count.js'
import { type Entry, readEntries } from '../inspect/entries.js'
import { type Flow, readFlows } from '../inspect/flow.js'
import { replicaStates } from '../inspect/replicas.js'
import { mixedAmong } from '../inspect/versions.js'
import { pausesListed } from '../pauses/pause.js'
import type { System } from '../system/system.js'
import { readAcks } from './acks.js'
import { type ChangeSources, type Dated, windowOf } from './before.js'
import type { CauseFlow } from './document-rows.js'
import type { EndedOperation } from './helped.js'
import type { ScheduleSeen } from './schedule-rows.js'

const MOST_MS = 5_000
const UNAUTHORIZED = 13
const MOST_OPERATIONS = 100
/** The most schedules that are looked at. */
const MOST_SCHEDULES = 1_000

/** A source that this user's role may not read, as one of an earlier version may not: said, and taken as empty. */
export type Unread = (source: string) => unknown

async function ifAllowed<T>(reading: Promise<T>, otherwise: T, source: string, unread: Unread): Promise<T> {
  return reading.catch((error: unknown) => {
    if (!isServerError(error, UNAUTHORIZED)) throw error
    unread(source)
    return otherwise
  })
}

/** What the rows are made from. Reads no document of a lifecycle. */
export async function readSources(system: System, request: CensusRequest, unread: Unread) {
  const { db } = system
  const models = system.models.filter(({ name }) => name !== OPERATION_LIFECYCLE)
  const lifecycles = models.map(({ name }) => name)
  // Who runs what, what is paused and what changed: read once.
  const readingEntries = readEntries(
    db,
    system.models.map(({ name }) => name),
  )
  const [{ census, now, without }, entries, { states: replicas }, { duties }, { operations }, pauses, acks, schedules] =
    await Promise.all([
      censusFor({ db, models }, request),
      readingEntries,
      readingEntries.then((entries) => replicaStates({ ...system, models }, '30s', entries)),
      ifAllowed(readDuties(db), { duties: [], now: undefined }, 'duties', unread),
      ifAllowed(
        listOperations({ db, models: [] }, { limit: MOST_OPERATIONS, open: true }),
        { operations: [], now: undefined },
        'operations',
        unread,
      ),
      readingEntries.then((entries) => pausesListed(db, pausesIn(entries))),
      readAcks(db),
      ifAllowed(schedulesOf(system), [], 'schedules', unread),
    ])
  const entryOf = new Map(entries.map((entry) => [entry._id, entry]))
  const leaseMs = new Map(
    models.map(({ name, settings }) => {
      const entry = entryOf.get(name)
      return [name, (entry && lockTimeoutAt(entry, entry.now)?.dueMs) ?? settings.lockTimeoutMs]
    }),
  )
  const [flows, mixed] = await Promise.all([
    ifAllowed(flowsOf(db, census, now), new Map<string, Flow>(), 'flows', unread),
    mixedAmong({ db, models }, replicas),
  ])
  return {
    now,
    lifecycles,
    entries: entries.filter(({ _id }) => lifecycles.includes(_id)),
    census,
    without,
    flows,
    mixed,
    replicas,
    duties,
    operations,
    pauses,
    acks,
    leaseMs,
    schedules,
  }
}

/** The pauses in force, by lifecycle. */
const pausesIn = (entries: readonly Entry[]) =>
  new Map(
    entries.map(
      ({ _id, pauses, now }) => [_id, storedPauses(pauses).filter((pause) => isInForce(pause, now))] as const,
    ),
  )

/** The most lifecycles whose flow is read. */
const MOST_FLOWS = 10

/** The flow of the last hour, of lifecycles with errors or parked documents; if there are none, of any, for the throughput. */
async function flowsOf(db: Db, census: ReadonlyMap<string, Census>, now: Date): Promise<ReadonlyMap<string, Flow>> {
  const troubled = [...census.values()].filter(({ errors, parks }) => errors.length + parks.length > 0)
  const names = (troubled.length > 0 ? troubled : [...census.values()]).map(({ _id }) => _id).slice(0, MOST_FLOWS)
  const flows = names.length > 0 ? await readFlows(db, names, {}, now) : []
  return new Map(flows.map((one) => [one.lifecycle, one]))
}

/** What a lifecycle's flow says of the causes that its census names; undefined: it isn't read. */
export function causesIn(
  { errors, parks }: Census,
  flow: Flow | undefined,
): ReadonlyMap<string, CauseFlow> | undefined {
  if (!flow) return undefined
  const none = { n: 0, byMinute: flow.intervals.map(() => 0), versions: [] }
  return new Map(
    [...errors, ...parks].flatMap(({ cause }): [string, CauseFlow][] => {
      const { n, byInterval: byMinute, versions } = flow.causes[cause] ?? {}
      if (n !== undefined) return [[cause, { n, byMinute: byMinute!, versions: versions! }]]
      // Where all replicas count, none has recorded it within the hour.
      return flow.uncounted?.length === 0 ? [[cause, none]] : []
    }),
  )
}

export type Sources = Awaited<ReturnType<typeof readSources>>

function schedulesOf({ db, collections }: System): Promise<ScheduleSeen[]> {
  const projection = { phase: 1, broken: 1, nextRunAt: 1, 'lastSuccess.at': 1, lastFailure: 1 }
  const schedules = protocolCollection(db, collections?.schedules ?? 'schedules')
  const limited = { projection, sort: { _id: 1 }, limit: MOST_SCHEDULES, maxTimeMS: MOST_MS } as const
  return readOwnFields((how) => schedules.find({}, { ...limited, ...how }).toArray()) as Promise<ScheduleSeen[]>
}

/** The most audit entries that are read for one window. */
const MOST_OF_WINDOW = 100
const MOST_OF_AUDIT = 10

/** What changed in the windows of some rows: of the audit with one command for all of them. */
export async function readChanges(
  { db }: System,
  rows: readonly Dated[],
  { entries, replicas, pauses }: Pick<Sources, 'entries' | 'replicas' | 'pauses'>,
  unread: Unread,
): Promise<ChangeSources> {
  const windows = new Map(
    rows.flatMap((row) => {
      const window = windowOf(row)
      return window ? [[`${row.lifecycle} ${window.to.getTime()}`, { ...window, lifecycle: row.lifecycle }]] : []
    }),
  )
  const [first, ...others] = [...windows.values()].map(({ from, to, lifecycle }): Document[] => [
    { $match: { at: { $gte: from, $lte: to } } },
    { $sort: { at: -1 } },
    { $limit: MOST_OF_WINDOW },
    // What people did with single documents is in these documents' histories.
    {
      $match: {
        document: { $exists: false },
        ...(lifecycle !== undefined && { lifecycle: { $in: [null, lifecycle] } }),
      },
    },
    { $limit: MOST_OF_AUDIT },
    { $project: { _id: 0, at: 1, by: 1, action: 1, target: 1, lifecycle: 1, outcome: 1 } },
  ])
  const union = others.map((pipeline) => ({ $unionWith: { coll: AUDIT_COLLECTION, pipeline } }))
  const reading = first
    ? protocolCollection(db, AUDIT_COLLECTION)
        .aggregate<ChangeSources['audit'][number]>([...first, ...union], { maxTimeMS: MOST_MS })
        .toArray()
    : Promise.resolve([])
  const found = await ifAllowed(reading, [], 'audit', unread)
  // Two windows may overlap.
  const audit = [...new Map(found.map((one) => [JSON.stringify(one), one])).values()].filter(
    ({ at }) => at instanceof Date,
  )
  return { audit, replicas, pauses, entries: datedChanges(entries) }
}

function datedChanges(entries: readonly Entry[]): ChangeSources['entries'] {
  return entries.flatMap(({ _id, lockTimeout, lockTimeoutWas: was, lockTimeoutSince, graphs }: Document) => {
    const changes = [
      { at: lockTimeoutSince, what: `lockTimeout changed from ${was} to ${lockTimeout} ms` },
      ...(Array.isArray(graphs) ? graphs : []).map((one) => ({
        ...{ at: one?.at, what: `definition ${one?.graph} registered for the first time` },
      })),
    ]
    return changes.flatMap(({ at, what }) => (at instanceof Date ? [{ at, lifecycle: String(_id), what }] : []))
  })
}

const MOST_ENDED = 200

/** Operations that have ended and were begun for one of these causes, the newest first. */
export async function readEnded({ db }: System, causes: readonly string[], unread: Unread): Promise<EndedOperation[]> {
  if (causes.length === 0) return []
  const projection = {
    action: 1,
    lifecycle: 1,
    by: 1,
    cause: 1,
    createdAt: 1,
    phase: 1,
    'counts.done': 1,
    'progress.since': 1,
  }
  const filter: Document = { phase: { $in: ['Done', 'Aborted'] }, cause: { $in: [...causes] } }
  const reading = readOwnFields((how) =>
    protocolCollection(db, OPERATIONS_COLLECTION)
      .find(filter, { projection, sort: { createdAt: -1 }, limit: MOST_ENDED, maxTimeMS: MOST_MS, ...how })
      .toArray(),
  )
  const found = await ifAllowed<Document[]>(reading, [], 'operations', unread)
  return found.flatMap(({ _id, phase, createdAt, counts, progress, ...rest }: Document): EndedOperation[] => {
    const endedAt: unknown = progress?.since
    if (!(endedAt instanceof Date)) return []
    const begunAt = createdAt instanceof Date ? createdAt : endedAt
    const { action, lifecycle, by, cause } = rest
    return [
      {
        ...{
          _id: String(_id),
          action: String(action),
          lifecycle: String(lifecycle),
          by: String(by),
          cause: String(cause),
        },
        ...{ begunAt, endedAt, ended: phase, done: typeof counts?.done === 'number' ? counts.done : 0 },
      },
    ]
  })
}
