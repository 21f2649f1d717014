import type { AnyBulkWriteOperation, Collection, Db, Document } from 'mongodb'
import { isServerError, protocolCollection } from '../../database/index.js'
import { addUp, type FlowMinute, type FlowSums, flowMinutesIn, flowSumsIn } from './flow-sums.js'
import { REPLICAS_COLLECTION } from './replicas.js'

/** Holds a document for each lifecycle and minute of the last 24 hours, and for each lifecycle and hour of the last 30 days. */
export const FLOWS_COLLECTION = 'phaselock.flows'

const MINUTE_MS = 60_000
const HOUR_MS = 3_600_000
const DAY_MS = 86_400_000
const MINUTES_KEPT_MS = DAY_MS
const HOURS_KEPT_MS = 30 * DAY_MS
export const COPY_EVERY_MS = 2 * MINUTE_MS

const MOST_MS = 5_000
const DUPLICATE_KEY = 11_000
/** The most documents that are read with one command. */
const READ_AT_ONCE = 500

export type FlowUnit = 'minute' | 'hour'
export const flowUnitMs = (unit: FlowUnit): number => (unit === 'minute' ? MINUTE_MS : HOUR_MS)

/** The begin of the minute or hour that a time is in. */
export const beginOf = (unit: FlowUnit, at: Date): Date => {
  const ms = flowUnitMs(unit)
  return new Date(Math.floor(at.getTime() / ms) * ms)
}

/** By time first: what is too old is one range. */
export const flowId = (unit: FlowUnit, at: Date, lifecycle: string): string =>
  `${prefixOf(unit)}${at.toISOString().slice(0, 16)}|${lifecycle}`
const prefixOf = (unit: FlowUnit): string => `${unit}|`

/** A stored minute or hour. */
interface StoredFlow extends FlowSums {
  readonly _id: string
  /** The minutes of replicas that are in it: each once. */
  readonly parts: readonly string[]
}

/** The part that one replica has in a minute. */
export interface FlowPart {
  readonly lifecycle: string
  readonly at: Date
  /** Names the part: of this start of the replica, and this minute of it. */
  readonly key: string
  readonly sums: FlowSums
}

const flowsOf = (db: Db): Collection<Document & { _id: string }> => protocolCollection(db, FLOWS_COLLECTION)

/** The parts of a replica's minutes. Its version stands in the causes: the rows of one replica don't repeat it. */
export const partsOf = (replica: string, minutes: readonly FlowMinute[], appVersion: string | undefined): FlowPart[] =>
  minutes.flatMap(({ seq, at, lifecycles }) =>
    lifecycles.map(({ name, moves, causes, times }) => {
      const versions = [appVersion ?? '?']
      const sums = { moves, causes: causes.map((one) => ({ ...one, versions })), times }
      return { lifecycle: name, at: beginOf('minute', at), key: `${replica}#${seq}`, sums }
    }),
  )

/** The parts that stand in a replica's document. */
export const partsInBeat = ({ _id, flow, appVersion }: Document): FlowPart[] =>
  partsOf(String(_id), flowMinutesIn(flow), typeof appVersion === 'string' ? appVersion : undefined)

/** The most documents of replicas that are copied together, dead ones included: each may hold twelve thousand rows. */
const BEATS_AT_ONCE = 50

/** Copies what replicas have sent with their beats, and removes what is too old. Doing it again, or by two at once, changes nothing. */
export async function copyFlows(db: Db, now: Date): Promise<{ readonly copied: number; readonly removed: number }> {
  const beats: Collection<Document & { _id: string }> = protocolCollection(db, REPLICAS_COLLECTION)
  const reading = { projection: { flow: 1, appVersion: 1 }, limit: BEATS_AT_ONCE, maxTimeMS: MOST_MS } as const
  let [copied, after] = [0, '']
  let some: Document[]
  do {
    const next = { 'flow.0': { $exists: true }, _id: { $gt: after } }
    some = await beats.find(next, reading).sort({ _id: 1 }).toArray()
    copied += await storeFlows(db, some.flatMap(partsInBeat), now)
    after = some.at(-1)?.['_id']
  } while (some.length === BEATS_AT_ONCE)
  const olderThan = (unit: FlowUnit, ms: number) => ({
    _id: { $gte: prefixOf(unit), $lt: flowId(unit, new Date(now.getTime() - ms), '') },
  })
  const old = { $or: [olderThan('minute', MINUTES_KEPT_MS), olderThan('hour', HOURS_KEPT_MS)] }
  const { deletedCount } = await flowsOf(db).deleteMany(old, { maxTimeMS: MOST_MS })
  return { copied, removed: deletedCount }
}

/**
 * Adds parts to their minutes, each once, and adds up the hours again. A minute is written only as it was read: of two writers at the same time one
 * changes nothing, and adds its parts the next time.
 * @returns the number of parts that were new
 */
export async function storeFlows(db: Db, parts: readonly FlowPart[], now: Date): Promise<number> {
  const oldest = now.getTime() - MINUTES_KEPT_MS
  const recent = parts.filter(({ at }) => at.getTime() > oldest && at.getTime() <= now.getTime() + HOUR_MS)
  const byMinute = Map.groupBy(recent, ({ at, lifecycle }) => flowId('minute', at, lifecycle))
  if (byMinute.size === 0) return 0
  const known = await readStored(db, [...byMinute.keys()])
  let added = 0
  const writes: AnyBulkWriteOperation<Document & { _id: string }>[] = []
  for (const [_id, all] of byMinute) {
    const before = known.get(_id)
    const fresh = newOf(all, before)
    if (fresh.length === 0) continue
    added += fresh.length
    const { lifecycle, at } = fresh[0]!
    const sums = addUp([...(before ? [before] : []), ...fresh.map((one) => one.sums)])
    const fields = { lifecycle, at, parts: [...(before?.parts ?? []), ...fresh.map(({ key }) => key)], ...sums }
    writes.push(
      before
        ? { updateOne: { filter: { _id, parts: [...before.parts] }, update: { $set: fields } } }
        : { insertOne: { document: { _id, ...fields } } },
    )
  }
  await write(db, writes)
  // Of all minutes, not only of those that have changed: whoever wrote one may have ended before it added its hour up.
  await addUpHours(
    db,
    [...byMinute.values()].map(([first]) => first!),
  )
  return added
}

/** The parts that aren't in a stored minute yet, each once. */
export function newOf(parts: readonly FlowPart[], stored: Pick<StoredFlow, 'parts'> | undefined): FlowPart[] {
  const known = new Set(stored?.parts)
  return parts.filter(({ key }) => !known.has(key) && known.add(key))
}

/** Adds an hour up from its minutes, so that a late minute is in it too. An hour never loses parts to a writer that has read earlier. */
async function addUpHours(db: Db, of: readonly Pick<FlowPart, 'lifecycle' | 'at'>[]): Promise<void> {
  const hours = of.map(({ lifecycle, at }) => ({ lifecycle, at: beginOf('hour', at) }))
  const byHour = new Map(hours.map((one) => [flowId('hour', one.at, one.lifecycle), one]))
  const minutes = await readStored(
    db,
    [...byHour.values()].flatMap(({ lifecycle, at }) => minutesOf(at).map((one) => flowId('minute', one, lifecycle))),
  )
  const writes = [...byHour].map(([_id, { lifecycle, at }]) => {
    const all = minutesOf(at).flatMap((one) => minutes.get(flowId('minute', one, lifecycle)) ?? [])
    const count = all.reduce((sum, { parts }) => sum + parts.length, 0)
    const update = { $set: { lifecycle, at, count, ...addUp(all) } }
    return { updateOne: { filter: { _id, count: { $lte: count } }, update, upsert: true } }
  })
  await write(db, writes)
}

const minutesOf = (hour: Date): Date[] => Array.from({ length: 60 }, (_, i) => new Date(hour.getTime() + i * MINUTE_MS))

/** A key that is taken: another writer was faster. */
async function write(db: Db, writes: AnyBulkWriteOperation<Document & { _id: string }>[]): Promise<void> {
  if (writes.length === 0) return
  try {
    await flowsOf(db).bulkWrite(writes, { ordered: false, maxTimeMS: MOST_MS })
  } catch (error) {
    if (!isServerError(error, DUPLICATE_KEY)) throw error
  }
}

/** Reads minutes or hours by their names. A person may have changed one: what is no sum counts as absent. */
export async function readStored(db: Db, ids: readonly string[]): Promise<ReadonlyMap<string, StoredFlow>> {
  const found = new Map<string, StoredFlow>()
  for (let i = 0; i < ids.length; i += READ_AT_ONCE) {
    const some = ids.slice(i, i + READ_AT_ONCE)
    const rows = await flowsOf(db)
      .find({ _id: { $in: some } }, { maxTimeMS: MOST_MS })
      .toArray()
    for (const row of rows) {
      const parts = Array.isArray(row['parts']) ? row['parts'].filter((one) => typeof one === 'string') : []
      found.set(row._id, { _id: row._id, parts, ...flowSumsIn(row) })
    }
  }
  return found
}
