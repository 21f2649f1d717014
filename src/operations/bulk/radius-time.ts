import type { Document } from 'mongodb'
import { isServerError } from '../../database/index.js'
import { type Limit, pausedLimitText, readLimits } from '../../lock/index.js'
import { type Count, type LifecycleModel, type LimitNeed, workingPhases } from '../../phases/index.js'
import { durationMs } from '../../time/index.js'
import { type Flow, readFlow } from '../inspect/flow.js'
import type { System } from '../system/system.js'
import type { OperationAction } from './operation.js'
import type { OperationRequest } from './request.js'
import { batchesOf, DEFAULT_WATCH } from './trial-request.js'

/** How long documents take to get through one limit of their phase. */
export interface LimitTime {
  /** The name of the limit. */
  readonly limit: string
  /** In ms; null: unknown, or they wait until a person changes it. */
  readonly ms: number | null
  /** The reason why it is null. */
  readonly why: string | null
}

/** What runs after the operation, in one phase. */
export interface PhaseTime {
  /** The phase whose steps run. */
  readonly phase: string
  /** The number of documents that become due in it. */
  readonly documents: Count
  /** The time in ms in which as many have left the phase in the last hour; null: none have, or it isn't known. */
  readonly flowMs: number | null
  /** The limits of the phase. */
  readonly limits: readonly LimitTime[]
}

/** How long an operation takes, and what it sets off. */
export interface RadiusTime {
  /** The shortest time for its own writes, by its rate, in ms. A database that is slow for its concurrency makes it longer. */
  readonly leastMs: number
  /** The most that a trial waits for outcomes, over all its batches, in ms; null: it is no trial. */
  readonly watchesMs: number | null
  /** The steps that its documents become due for; null: unknown, because rules, sleeps or pauses decide which run. */
  readonly phases: readonly PhaseTime[] | null
  /** Live replicas of an older version, which the times by flow leave out. */
  readonly uncounted: readonly string[]
}

/** The actions that make each of their documents due. */
const DUE_AFTER: readonly OperationAction[] = ['wake', 'unpark', 'redo']
/** The actions after which no step runs because of them. */
const NOTHING_AFTER: readonly OperationAction[] = ['pause', 'cancel', 'remove']

const FLOW_MINUTES = 60
const UNAUTHORIZED = 13

interface Acting {
  readonly model: LifecycleModel
  readonly options: Document
  readonly count: number
  /** Those that it would act on, among those that were looked at. */
  readonly done: readonly Document[]
  readonly counted: (some: readonly unknown[]) => Count
}

/** Reads the flow of the last hour, and the limits of the phases. */
export async function timeOf(system: System, request: OperationRequest, acting: Acting): Promise<RadiusTime> {
  const { action, rate = 1_000, first, watch = DEFAULT_WATCH } = request
  const { count } = acting
  const isWatched = first !== undefined
  const own = {
    leastMs: Math.ceil((count / rate) * 1_000),
    watchesMs: isWatched ? batchesOf(first, count) * durationMs(watch) : null,
  }
  if (NOTHING_AFTER.includes(action)) return { ...own, phases: [], uncounted: [] }
  if (!DUE_AFTER.includes(action)) return { ...own, phases: null, uncounted: [] }
  return { ...own, ...(await afterwards(system, acting)) }
}

async function afterwards(
  { db }: System,
  { model, options, done, counted }: Acting,
): Promise<Pick<RadiusTime, 'phases' | 'uncounted'>> {
  const working = workingPhases(model)
  const byPhase = Map.groupBy(done, ({ phase }) => options['phase'] ?? phase)
  const due = [...byPhase].filter(([phase]) => working.includes(phase))
  if (due.length === 0) return { phases: [], uncounted: [] }
  const needsOf = (phase: string) => model.phases.get(phase)?.limits ?? []
  const names = due.flatMap(([phase]) => needsOf(phase).flatMap(({ limit, key }) => (key ? [] : limit)))
  const [flow, stored] = await Promise.all([
    flowOf(db, model.name),
    names.length > 0 ? readLimits(db, names) : { limits: [] },
  ])
  const byName = new Map(stored.limits.map((one) => [one.name, one]))
  const phases = due.map(([phase, documents]): PhaseTime => {
    const many = counted(documents)
    const { rate = 0, p50Ms = null } = flow?.phases[phase] ?? {}
    const flowMs = rate > 0 ? Math.round((many.n / rate) * 60_000) : null
    const limits = needsOf(phase).map((need) =>
      limitTime(need, byName.get(need.limit) ?? declaredIn(model, need), many.n, p50Ms),
    )
    return { phase, documents: many, flowMs, limits }
  })
  return { phases, uncounted: flow?.uncounted ?? [] }
}

/** Undefined: this user may not read it. */
async function flowOf(db: System['db'], lifecycle: string): Promise<Flow | undefined> {
  try {
    return await readFlow(db, { lifecycle, minutes: FLOW_MINUTES })
  } catch (error) {
    if (!isServerError(error, UNAUTHORIZED)) throw error
    return undefined
  }
}

type Bounds = Pick<Limit, 'slots' | 'rate' | 'paused' | 'damaged'>

/** A limit that was never set has the slots that its lifecycle declares. */
const declaredIn = ({ declaredLimits }: LifecycleModel, { limit }: LimitNeed): Bounds => ({
  ...{ slots: declaredLimits?.get(limit) ?? 0, rate: null, paused: null, damaged: null },
})

function limitTime(need: LimitNeed, limit: Bounds, documents: number, p50Ms: number | null): LimitTime {
  const unknown = (why: string): LimitTime => ({ limit: need.limit, ms: null, why })
  if (need.key) return unknown(`each ${need.key.of} has one of its own`)
  if (limit.damaged !== null) return unknown(`it is damaged: ${limit.damaged}`)
  if (limit.paused) return unknown(pausedLimitText(need.limit, limit.paused))
  if (limit.slots !== null && limit.slots < need.slots) return unknown(`it has ${limit.slots} of ${need.slots} slots`)
  const byRate = limit.rate ? (documents / limit.rate.starts) * limit.rate.perMs : 0
  if (limit.slots === null) return { limit: need.limit, ms: Math.round(byRate), why: null }
  if (p50Ms === null) return unknown('no document has left the phase in the last hour')
  const atOnce = Math.floor(limit.slots / need.slots)
  return { limit: need.limit, ms: Math.round(Math.max(byRate, (documents / atOnce) * p50Ms)), why: null }
}
