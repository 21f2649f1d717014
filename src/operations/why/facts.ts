import type { Document } from 'mongodb'
import { isServerError } from '../../database/index.js'
import {
  type Ahead,
  CLAIM_INDEX,
  countAhead,
  countOtherDue,
  HANDLED_EVERY_MS,
  hasIndex,
  isDue,
  LIFECYCLES_COLLECTION,
  type Limit,
  namesNobodyKnows,
  orderIndexes,
  PRESENT_REPLICAS,
  type PresentReplica,
  readLimits,
  readOwnFields,
  readStartsLeft,
  STAND_IN_INDEX,
  type UnusableIndex,
  unusableLockIndexes,
  valuesOfRank,
  whyNotClaimable,
} from '../../lock/index.js'
import { declaredLimits, keyNeedOf, type LifecycleModel, type LimitNeed, modelRegistered } from '../../phases/index.js'
import type { Found } from '../inspect/find.js'
import { type ReplicaState, replicasDescribed } from '../inspect/replicas.js'
import { type InForce, runsOf, type System } from '../system/system.js'

/** A document to be judged: as it is stored, or as an action would leave it. */
export interface Judged {
  readonly system: System
  readonly model: LifecycleModel
  readonly found: Found
  readonly inForce: InForce
  /** The pipeline on its collection that yields it. */
  readonly stages: readonly Document[]
}

/** What the server said; or why that isn't known. */
export type Known<T> = { readonly value: T } | { readonly unknown: string }

export async function known<T>(read: () => Promise<T>): Promise<Known<T>> {
  try {
    return { value: await read() }
  } catch (error) {
    // Without the database nothing is known, which is an error; an answer of the server's concerns this read alone.
    if (isServerError(error)) return { unknown: error.message }
    throw error
  }
}

/** The entry of a lifecycle, as far as it says who looks after it. */
export interface Entry {
  readonly present: readonly PresentReplica[]
  /** True if a replica has looked within the last two minutes, announced or not. */
  readonly isLookedAfter: boolean
  readonly clockStep: { readonly ms: number; readonly at: Date; readonly until: Date } | undefined
  /** Phases of which only the name is known: an older version has registered them. */
  readonly onlyNamed: readonly string[]
}

/** A limit that the next step needs; `limit`: undefined if there is no document of it. */
export interface NeededLimit extends LimitNeed {
  readonly limitNow: Limit | undefined
  /** The number of slots that lifecycles declare. */
  readonly declared: number | undefined
  /** With a rate: the number of documents that may begin now. */
  readonly startsLeft: number | undefined
}

/** What is read to judge the terms that a document's own fields don't decide: at most eleven commands, whatever there is in the database. */
export interface Facts {
  readonly entry: Known<Entry>
  readonly replicas: Known<readonly ReplicaState[]>
  readonly limits: Known<readonly NeededLimit[]>
  readonly index: Known<UnusableIndex | undefined>
  readonly refusal: Known<string | undefined>
  /** Undefined: it isn't due in a working phase, and so in no queue. */
  readonly ahead: Known<Ahead> | undefined
  /** Undefined: no step of the server's clock is held back. */
  readonly dueWithoutStep: Known<boolean> | undefined
  /** The task of a schedule's run that no live replica knows. */
  readonly unknownTask: Known<string | undefined>
  /** The other due documents of its phase, of all values and kinds; undefined: its queue has no order by a field, or it is in none. */
  readonly due: Known<number> | undefined
}

/** Those of them that an action on the document leaves as they are. */
export type SharedFacts = Pick<Facts, 'entry' | 'replicas' | 'index' | 'unknownTask'>

/** @param shared what is known of the same document already, as it was before an action */
export async function factsOf(judged: Judged, shared?: SharedFacts): Promise<Facts> {
  const { system, model, found, stages } = judged
  const { db } = system
  const { document, condition } = found
  const isDueNow = condition.kind === 'due'
  const collection = db.collection(model.collection)
  const entry = shared?.entry ?? (await known(() => entryOf(judged)))
  const order = orderOf(model, document)
  const dueBefore = new Date(found.now.getTime() - judged.inForce.terms.lockTimeoutMs)
  const [replicas, limits, index, refusal, ahead, dueWithoutStep, unknownTask, due] = await Promise.all([
    shared?.replicas ?? known(async () => (await replicasDescribed({ db, models: [model] })).states),
    known(() => limitsNeeded(system, model, document)),
    shared?.index ?? known(() => claimIndexMissing(judged)),
    isDueNow
      ? known(() => whyNotClaimable(db, model.collection, judged.inForce.terms, document['_id'], stages))
      : { value: undefined },
    isDueNow ? known(() => countAhead(collection, document['phase'], document, order)) : undefined,
    isDueNow && 'value' in entry && entry.value.clockStep ? dueBut(judged, entry.value.clockStep) : undefined,
    shared?.unknownTask ?? known(() => taskNobodyKnows(judged)),
    isDueNow && order ? known(() => countOtherDue(collection, document['phase'], dueBefore)) : undefined,
  ])
  return { entry, replicas, limits, index, refusal, ahead, dueWithoutStep, unknownTask, due }
}

/** The first index without which its lifecycle's claims read nothing. While the claim index is rebuilt another takes its place. */
async function claimIndexMissing({ system, model }: Judged): Promise<UnusableIndex | undefined> {
  const collection = system.db.collection<Document>(model.collection)
  const orders = orderIndexes(model.settings)
  const needed = [CLAIM_INDEX, ...orders].map((key) => JSON.stringify(key))
  const unusable = await unusableLockIndexes(collection, orders)
  const first = unusable.find(({ key }) => needed.includes(JSON.stringify(key)))
  const isRebuilt = first?.key === CLAIM_INDEX && (await hasIndex(collection, STAND_IN_INDEX))
  return isRebuilt ? undefined : first
}

async function entryOf({ system, model }: Judged): Promise<Entry> {
  const pipeline = [
    { $match: { _id: model.name } },
    { $project: { document: '$$ROOT', present: PRESENT_REPLICAS, now: '$$NOW' } },
  ]
  const lifecycles = system.db.collection<{ _id: string }>(LIFECYCLES_COLLECTION)
  const [row] = await readOwnFields((how) => lifecycles.aggregate(pipeline, how).toArray())
  const { document = {}, present = [], now } = row ?? {}
  const { handledAt, clockStep } = document
  const { ms, at, until } = Object(clockStep) as Document
  const isHeld = until instanceof Date && at instanceof Date && typeof ms === 'number' && ms > 0 && until > now
  return {
    present: present.filter(({ name }: Document) => typeof name === 'string'),
    isLookedAfter: handledAt instanceof Date && Math.abs(now.getTime() - handledAt.getTime()) < 2 * HANDLED_EVERY_MS,
    clockStep: isHeld ? { ms, at, until } : undefined,
    onlyNamed: row ? (modelRegistered(document)?.onlyNamed ?? []) : [],
  }
}

/** The field that puts claims in order, with the values that share a queue with this document's. */
function orderOf({ settings: { priorityBy, fairBy } }: LifecycleModel, document: Document) {
  if (priorityBy !== undefined) {
    const values = valuesOfRank(document[priorityBy])
    return values && { field: priorityBy, values }
  }
  return fairBy === undefined ? undefined : { field: fairBy, values: [document[fairBy] ?? null] }
}

/** Asks the server if it would be due without the step of its clock, by the claim's own condition. */
function dueBut(
  { system, model, stages, inForce }: Judged,
  { ms, at }: NonNullable<Entry['clockStep']>,
): Promise<Known<boolean>> {
  const hold = { ms, since: at, working: inForce.terms.working ?? [] }
  const match = { $match: { $expr: isDue({ ...inForce.terms, hold }) } }
  const pipeline = [...stages, match, { $project: { _id: 1 } }]
  return known(async () => {
    const found = await readOwnFields((how) =>
      system.db.collection(model.collection).aggregate(pipeline, how).toArray(),
    )
    return found.length > 0
  })
}

/** The limits that its phase needs, and that of its key. */
async function limitsNeeded(system: System, model: LifecycleModel, document: Document): Promise<NeededLimit[]> {
  const phase = model.phases.get(document['phase'])
  const own = phase?.kind === 'working' ? keyNeedOf(model, document) : undefined
  const needs = [...(phase?.limits ?? []), ...(own ? [own] : [])]
  if (needs.length === 0) return []
  const names = needs.map(({ limit }) => limit)
  const { limits } = await readLimits(system.db, names)
  const left = limits.some(({ rate }) => rate) ? await readStartsLeft(system.db, names) : new Map<string, number>()
  const ofAll = declaredLimits(system.models)
  return needs.map((need) => ({
    ...need,
    limitNow: limits.find(({ name }) => name === need.limit),
    declared: need.key ? need.key.slots : ofAll.get(need.limit),
    startsLeft: left.get(need.limit),
  }))
}

async function taskNobodyKnows({ system, found }: Judged): Promise<string | undefined> {
  const { task } = found.document
  if (typeof task !== 'string' || found.lifecycle !== runsOf(system.collections)) return undefined
  return (await namesNobodyKnows(system.db, found.lifecycle, [task]))[0]
}
