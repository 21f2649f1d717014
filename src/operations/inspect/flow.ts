import type { Db, Document } from 'mongodb'
import { isServerError, protocolCollection } from '../../database/index.js'
import {
  addUp,
  arrayAt,
  beginOf,
  type FlowMove,
  type FlowPart,
  type FlowSums,
  type FlowUnit,
  flowId,
  flowUnitMs,
  LIFECYCLES_COLLECTION,
  literal,
  MISSED_BEATS,
  MOST_VERSIONS,
  newOf,
  partsInBeat,
  REPLICAS_COLLECTION,
  readStored,
} from '../../lock/index.js'
import { systemClock } from '../../time/index.js'
import { UsageError } from '../system/errors.js'

const MOST = { minute: 24 * 60, hour: 30 * 24 } as const
const DEFAULT_MINUTES = 60
const MOST_MS = 5_000
const UNAUTHORIZED = 13

export interface FlowRequest {
  readonly lifecycle: string
  /** The number of minutes up to now, 1 to 1,440. Default: 60, if no `hours` are given. */
  readonly minutes?: number | undefined
  /** Or the number of hours, 1 to 720: then each interval is an hour. */
  readonly hours?: number | undefined
}

/** The recorded ends of steps within one minute or hour. */
export interface FlowInterval {
  /** Its begin, by the server's clock. */
  readonly at: Date
  /** All that was recorded: steps, moves by rules, removals. */
  readonly recorded: number
  /** Those that went to another phase. */
  readonly moved: number
  readonly errors: number
  readonly parks: number
}

/** A phase's documents that left it. */
export interface PhaseFlow {
  /** The number that left it. */
  readonly left: number
  /** How many left it in a minute, on average. */
  readonly rate: number
  /** The time in the phase that half of them took no longer than, within a factor of two; null: none left it by a step. */
  readonly p50Ms: number | null
  readonly p95Ms: number | null
}

export interface CauseFlow {
  readonly kind: 'error' | 'park'
  /** The message without its values. */
  readonly text: string
  readonly n: number
  /** The number in each of the intervals. */
  readonly byInterval: readonly number[]
  /** The versions of the app that recorded it; `?`: one that doesn't say. */
  readonly versions: readonly string[]
}

/** What replicas have recorded of a lifecycle, without a look at its documents. */
export interface Flow {
  readonly lifecycle: string
  readonly unit: FlowUnit
  /** The server's time. */
  readonly now: Date
  /** Oldest first; the last one isn't over yet. */
  readonly intervals: readonly FlowInterval[]
  /** The number of recorded ends in a minute, on average over the time of `intervals`. */
  readonly perMinute: number
  /** Most first. */
  readonly moves: readonly FlowMove[]
  /** By phase. */
  readonly phases: Readonly<Record<string, PhaseFlow>>
  /** By cause, most first; `other`: more than 200 in one minute. */
  readonly causes: Readonly<Record<string, CauseFlow>>
  /**
   * Live replicas of the lifecycle that don't count, because they are of an older version: what they record isn't in here. Null: this user may not read
   * the replicas' documents, so neither these names nor what isn't copied from there yet are known.
   */
  readonly uncounted: readonly string[] | null
}

/**
 * The flow of a lifecycle: rates, times in phases and causes of errors, from what replicas count as they record it. Reads at most one document for each
 * interval, and those of the replicas. The current minute is missing, and what a killed replica hadn't sent.
 * @example (await readFlow(db, { lifecycle: 'order', minutes: 30 })).phases['Packing'] // { left: 120, rate: 4, p50Ms: 768, p95Ms: 3072 }
 * @throws UsageError for a number of minutes or hours out of range, or both
 */
export async function readFlow(db: Db, { lifecycle, ...request }: FlowRequest): Promise<Flow> {
  return (await readFlows(db, [lifecycle], request))[0]!
}

/**
 * The flows of some lifecycles in their order, with as few commands as that of one.
 * @param at the server's time. Default: it is asked
 */
export async function readFlows(
  db: Db,
  lifecycles: readonly string[],
  { minutes, hours }: Omit<FlowRequest, 'lifecycle'> = {},
  at?: Date,
): Promise<Flow[]> {
  if (minutes !== undefined && hours !== undefined) throw new UsageError('expected minutes or hours, got both')
  const unit: FlowUnit = hours === undefined ? 'minute' : 'hour'
  const count = hours ?? minutes ?? DEFAULT_MINUTES
  if (!Number.isInteger(count) || count < 1 || count > MOST[unit])
    throw new UsageError(`${unit}s: expected a whole number from 1 to ${MOST[unit]}, got ${count}`)
  const [now, beats] = await Promise.all([at ?? serverTime(db), beatsOf(db, lifecycles)])
  const ms = flowUnitMs(unit)
  const last = beginOf(unit, now).getTime()
  const begins = Array.from({ length: count }, (_, i) => new Date(last - (count - 1 - i) * ms))
  const overMinutes = Math.max((now.getTime() - begins[0]!.getTime()) / 60_000, 1)
  const sumsOf = await sumsBy(db, { lifecycles, unit, begins, parts: beats?.flatMap(partsInBeat) ?? [] })
  return lifecycles.map((lifecycle) => {
    const byBegin = sumsOf(lifecycle)
    const sums = begins.map((begin) => byBegin.get(begin.getTime()) ?? addUp([]))
    const all = addUp(sums)
    const intervals = sums.map((one, i) => intervalOf(begins[i]!, one))
    return {
      ...{ lifecycle, unit, now, intervals },
      perMinute: intervals.reduce((n, { recorded }) => n + recorded, 0) / overMinutes,
      moves: [...all.moves].sort((a, b) => b.n - a.n),
      phases: phasesOf(all, overMinutes),
      causes: causesOf(all, sums),
      uncounted: beats?.filter((beat) => isUncounted(beat, lifecycle)).map(({ _id }) => String(_id)) ?? null,
    }
  })
}

async function serverTime(db: Db): Promise<Date> {
  const pipeline = [{ $limit: 1 }, { $project: { _id: 0, now: '$$NOW' } }]
  const [row] = await db.collection(LIFECYCLES_COLLECTION).aggregate(pipeline, { maxTimeMS: MOST_MS }).toArray()
  // Without any lifecycle nothing was ever counted.
  return row?.['now'] ?? systemClock.now()
}

/** The documents of replicas, with the parts of these lifecycles that may not be copied yet: nothing of others is sent. Undefined: this user has no right on them. */
async function beatsOf(db: Db, lifecycles: readonly string[]): Promise<Document[] | undefined> {
  const isSound = { $and: [{ $isNumber: '$everyMs' }, { $eq: [{ $type: '$seenAt' }, 'date'] }] }
  const isRecent = {
    $lte: [{ $abs: { $subtract: ['$$NOW', '$seenAt'] } }, { $multiply: ['$everyMs', MISSED_BEATS] }],
  }
  const among = { $in: [...lifecycles] }
  const own = {
    $filter: {
      input: arrayAt('$$minute.lifecycles'),
      as: 'one',
      cond: { $in: ['$$one.name', literal([...lifecycles])] },
    },
  }
  const minute = { seq: '$$minute.seq', at: '$$minute.at', lifecycles: own }
  const flow = { $map: { input: arrayAt('$flow'), as: 'minute', in: minute } }
  const pipeline = [
    { $match: { $or: [{ 'flow.lifecycles.name': among }, { 'lifecycles.name': among }] } },
    {
      $project: {
        ...{ 'lifecycles.name': 1, 'lifecycles.graph': 1, flow, appVersion: 1 },
        isLive: { $cond: [isSound, isRecent, false] },
      },
    },
  ]
  const replicas = protocolCollection<Document>(db, REPLICAS_COLLECTION)
  return replicas
    .aggregate(pipeline, { maxTimeMS: MOST_MS })
    .toArray()
    .catch((error: unknown) => {
      if (!isServerError(error, UNAUTHORIZED)) throw error
      return undefined
    })
}

/** True if it runs the lifecycle and doesn't count. The versions that count also say which graph they run. */
function isUncounted({ isLive, lifecycles }: Document, lifecycle: string): boolean {
  const own = Array.isArray(lifecycles) ? lifecycles.filter((one) => one?.name === lifecycle) : []
  return isLive && own.length > 0 && !own.some(({ graph }) => typeof graph === 'string')
}

interface Wanted {
  readonly lifecycles: readonly string[]
  readonly unit: FlowUnit
  readonly begins: readonly Date[]
  readonly parts: readonly FlowPart[]
}

/**
 * The sums of each interval of a lifecycle that has any, by its begin: what is stored, and those parts in beats that no minute has yet. One command reads
 * those of all lifecycles.
 */
async function sumsBy(
  db: Db,
  { lifecycles, unit, begins, parts }: Wanted,
): Promise<(lifecycle: string) => ReadonlyMap<number, FlowSums>> {
  const since = begins[0]!.getTime()
  const recent = Map.groupBy(
    parts.filter(({ at, lifecycle }) => at.getTime() >= since && lifecycles.includes(lifecycle)),
    ({ at, lifecycle }) => flowId('minute', at, lifecycle),
  )
  const asked = lifecycles.flatMap((lifecycle) => begins.map((at) => flowId(unit, at, lifecycle)))
  const stored = await readStored(db, [...new Set([...asked, ...recent.keys()])])
  const fresh = [...recent].flatMap(([_id, all]) => newOf(all, stored.get(_id)))
  const freshBy = Map.groupBy(fresh, ({ at, lifecycle }) => flowId(unit, beginOf(unit, at), lifecycle))
  return (lifecycle) =>
    new Map(
      begins.flatMap((at) => {
        const id = flowId(unit, at, lifecycle)
        const known = stored.get(id)
        const more = freshBy.get(id)?.map(({ sums }) => sums) ?? []
        return known || more.length > 0 ? [[at.getTime(), addUp([...(known ? [known] : []), ...more])] as const] : []
      }),
    )
}

function intervalOf(at: Date, { moves }: FlowSums): FlowInterval {
  const sum = (is: (move: FlowMove) => boolean) => moves.reduce((n, move) => n + (is(move) ? move.n : 0), 0)
  return {
    at,
    recorded: sum(() => true),
    moved: sum(({ from, to }) => from !== to),
    errors: sum(({ outcome }) => outcome === 'error'),
    parks: sum(({ outcome }) => outcome === 'park'),
  }
}

function phasesOf({ moves, times }: FlowSums, minutes: number): Record<string, PhaseFlow> {
  const left = new Map<string, number>()
  for (const { from, to, n } of moves) if (from !== to) left.set(from, (left.get(from) ?? 0) + n)
  return Object.fromEntries(
    [...left].map(([phase, count]) => {
      const { low = 0, n = [] } = times.find((one) => one.phase === phase) ?? {}
      return [
        phase,
        { left: count, rate: count / minutes, p50Ms: quantile(low, n, 0.5), p95Ms: quantile(low, n, 0.95) },
      ]
    }),
  )
}

/** The middle of the power of two that holds it; null: there are no times. */
function quantile(low: number, counts: readonly number[], share: number): number | null {
  const all = counts.reduce((sum, n) => sum + n, 0)
  let before = 0
  for (const [i, n] of counts.entries()) {
    before += n
    if (n > 0 && before >= all * share) return 1.5 * 2 ** (low + i)
  }
  return null
}

function causesOf(all: FlowSums, sums: readonly FlowSums[]): Record<string, CauseFlow> {
  const rows = Map.groupBy(all.causes, ({ cause }) => cause)
  const counts = sums.map(({ causes }) => Map.groupBy(causes, ({ cause }) => cause))
  const total = (some: readonly { readonly n: number }[] = []) => some.reduce((sum, { n }) => sum + n, 0)
  const flows = [...rows].map(([cause, some]): [string, CauseFlow] => {
    const { kind, text } = some[0]!
    const versions = [...new Set(some.flatMap((one) => one.versions))].slice(0, MOST_VERSIONS)
    return [cause, { kind, text, n: total(some), byInterval: counts.map((of) => total(of.get(cause))), versions }]
  })
  return Object.fromEntries(flows.sort(([, a], [, b]) => b.n - a.n))
}

const BARS = '▁▂▃▄▅▆▇█'

/**
 * Numbers as a line of bars, scaled to the highest; none is a space.
 * @example sparkline([0, 1, 4]) // ' ▂█'
 */
export function sparkline(numbers: readonly number[]): string {
  const most = Math.max(...numbers, 0)
  const bar = (n: number) => (n > 0 ? BARS[Math.max(Math.ceil((n / most) * BARS.length) - 1, 0)]! : ' ')
  return numbers.map(bar).join('')
}
