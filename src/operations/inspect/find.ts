import type { Document, Filter } from 'mongodb'
import {
  type CancelRequest,
  claimOf,
  idKey,
  type Limit,
  namesNobodyKnows,
  type Pause,
  Paused,
  readLimits,
  readOwnFields,
  seenOf,
  whyNotClaimable,
} from '../../lock/index.js'
import { declaredLimits, keyNeedOf, type LifecycleModel } from '../../phases/index.js'
import { idSpelt, idsMeantBy } from '../system/document-id.js'
import { NotFound, Refused, UsageError } from '../system/errors.js'
import { type InForce, inForceIn, modelOf, runsOf, type System, termsInForce } from '../system/system.js'
import { type ChildrenShown, childrenOf, type ParentShown, parentOf } from './children.js'
import { type Condition, conditionOf } from './condition.js'
import { explain, whyOf, whyPaused } from './explain.js'
import { holderNamedBy, type ReplicaState } from './replicas.js'

export interface DocumentRef {
  /** Its `_id` as people write it: `shop`, `42`, `66f0...`, `ObjectId("...")`, or Extended JSON: `{"$oid": "..."}`, `"42"`. */
  readonly id: string
  /** The lifecycle to search. Default: all. */
  readonly lifecycle?: string | undefined
}

/** A document and its condition. */
export interface Found {
  readonly lifecycle: string
  readonly document: Document
  readonly condition: Condition
  /** The condition in one sentence for people. */
  readonly explanation: string
  /** The reason why it waits, failed or is parked, in a few words; undefined if there is no reason, or it isn't stored. */
  readonly why: string | undefined
  /** The widest pause that keeps its next step from beginning; undefined if it isn't paused. */
  readonly pause: Pause | undefined
  /** The server's time of the read, which everything is judged by. */
  readonly now: Date
}

/** Documents of a lifecycle in the order of the claim index. */
export async function readDocuments(
  { db }: System,
  model: LifecycleModel,
  filter: Filter<Document>,
  limit: number,
): Promise<Found[]> {
  const asFound = foundIn(model, (await inForceIn(db, [model]))(model))
  const pipeline = [
    { $match: filter },
    { $sort: { phase: 1, lockedAt: 1, updatedAt: 1 } },
    { $limit: limit },
    { $project: { _id: 0, document: '$$ROOT', now: '$$NOW' } },
  ]
  const rows = await readOwnFields((how) => db.collection(model.collection).aggregate(pipeline, how).toArray())
  return (rows as unknown as ReadAt[]).map(asFound)
}

/** A document, and the server's time when it was read. */
export interface ReadAt {
  readonly document: Document
  readonly now: Date
}

/** What documents of a lifecycle do, by the terms and pauses in force. */
export function foundIn(model: LifecycleModel, { terms, pauses, cancels }: InForce): (read: ReadAt) => Found {
  const { lockTimeoutMs } = terms
  const paused = new Paused(pauses)
  return ({ document, now }) => {
    const condition = conditionOf(document, model, now, lockTimeoutMs)
    const pauses = paused.of(document['phase'], document['_id'])
    const [pause] = pauses
    const cancel = condition.kind === 'held' ? cancelOf(document['_id'], condition.by, cancels) : undefined
    const explanation = explain(document, model, now, lockTimeoutMs, { pauses, cancel })
    const why = pause ? pauses.map(whyPaused).join('; ') : whyOf(document, model, condition, now)
    return { lifecycle: model.name, document, condition, explanation, why, pause, now }
  }
}

/** The owner's request to the holder of a document. */
export const cancelOf = (id: unknown, by: string, cancels: readonly CancelRequest[]): CancelRequest | undefined =>
  cancels.find(({ _id, claim }) => claim === claimOf(by) && idKey(_id) === idKey(id))

/**
 * Finds a document by its `_id`; `also` has those of other lifecycles with the same `_id`, such as its children.
 * @throws NotFound; UsageError if the id matches several documents of one lifecycle (a number and a string)
 */
export async function findDocument(
  system: System,
  { id, lifecycle }: DocumentRef,
): Promise<Found & { readonly also: readonly Found[] }> {
  const models = lifecycle === undefined ? system.models : [modelOf(system, lifecycle)]
  const ids = idsMeantBy(id)
  const all = await Promise.all(
    models.map((model) => readDocuments(system, model, { _id: { $in: ids as never[] } }, ids.length)),
  )
  const [found, ...others] = all.filter((documents) => documents.length > 0)
  if (!found) {
    const lifecycles = models.map(({ name }) => name)
    throw new NotFound(
      `no document with the _id ${id} in ${lifecycles.join(', ')}`,
      { reason: 'noDocument', id, lifecycles },
      lifecycle === undefined ? 'see: phaselock list' : 'leave out --lifecycle to look in all',
    )
  }
  const meant = found.map(({ document }) => document['_id'] as unknown)
  if (meant.length === 1) return { ...found[0]!, also: others.flat() }
  throw new UsageError(
    `the _id ${id} means ${meant.length} documents`,
    { reason: 'ambiguousId', id, meant },
    `give it as one of: ${meant.map(idSpelt).join(', ')}`,
  )
}

/**
 * Finds the one document to be changed.
 * @param removed also accept one that is removed and only has undelivered callbacks
 * @throws NotFound; Refused if it is removed; UsageError if several have the `_id`, of one lifecycle or of several
 */
export async function documentMeant(
  system: System,
  ref: DocumentRef,
  { removed = false }: { readonly removed?: boolean } = {},
): Promise<Found> {
  const { also, ...found } = await findDocument(system, ref)
  if (also.length === 0) {
    if (removed || found.condition.kind !== 'removed') return found
    throw new Refused(
      `${found.lifecycle} ${ref.id} is removed: it is deleted when its callbacks have been told`,
      { reason: 'removed', lifecycle: found.lifecycle, id: found.document['_id'] },
      'see: phaselock callbacks',
    )
  }
  const all = [found, ...also]
  const lifecycles = all.map(({ lifecycle }) => lifecycle)
  const described = all.map((one) => `${one.lifecycle} (${one.document['phase']}, ${one.condition.kind})`)
  throw new UsageError(
    `${all.length} lifecycles have a document with the _id ${ref.id}: ${described.join(', ')}`,
    { reason: 'ambiguousLifecycle', id: ref.id, lifecycles },
    `say which: --lifecycle ${lifecycles[0]}`,
  )
}

/** A limit, and the number of its slots that a document needs. */
export interface LimitShown extends Limit {
  readonly needs: number
  /** The default number of slots: of a key, or as lifecycles declare it; undefined if they declare none, or any number. */
  readonly declared: number | undefined
}

/** One document with everything that a person wants to see. */
export interface Shown extends Found {
  /** The reason why the server lets no replica write it, although it is due; undefined if it does. */
  readonly refusal: string | undefined
  /** The replica that holds it, or held it last if that lease has expired; undefined if it is not held, or the replica isn't listed. */
  readonly holder: ReplicaState | undefined
  /** The limits that its phase needs, if it is due: it waits for a slot if one of them has no free slot. */
  readonly limits: readonly LimitShown[]
  /** The state of the children that its steps have inserted; undefined if they have inserted none. */
  readonly children: ChildrenShown | undefined
  /** Its parent; undefined if it has no parent. */
  readonly parent: ParentShown | undefined
  /** The digest of what was read: an action that is given it does nothing if the document has changed since. */
  readonly seen: string
  /** The documents of other lifecycles with the same `_id`. */
  readonly also: readonly Found[]
}

/**
 * Shows one document: a sentence that explains what it waits for, its fields and its history.
 * @example (await showDocument(system, { id: 'shop' })).explanation // Sleeps, due in 3 s, ...
 * @throws NotFound, UsageError
 */
export async function showDocument(system: System, ref: DocumentRef): Promise<Shown> {
  const found = await findDocument(system, ref)
  const token = holderOf(found.condition)
  const [refusal, holder, limits, children, parent] = await Promise.all([
    found.condition.kind === 'due' ? refusalOf(system, found) : undefined,
    token === undefined ? undefined : holderNamedBy(system, token),
    found.condition.kind === 'due' ? limitsNeeded(system, found) : [],
    childrenOf(system, found),
    parentOf(system, found),
  ])
  const unknown = await unknownTaskOf(system, found)
  const explanation = unknown === undefined ? found.explanation : unknown
  const seen = seenOf(found.document, modelOf(system, found.lifecycle).settings)
  return { ...found, explanation, refusal, holder, limits, children, parent, seen }
}

/** The explanation of a schedule's run whose task no live replica knows; it replaces that of other due documents. */
async function unknownTaskOf({ db, collections }: System, { lifecycle, condition, document }: Found) {
  const { task } = document
  if (condition.kind !== 'due' || typeof task !== 'string' || lifecycle !== runsOf(collections)) return undefined
  const [name] = await namesNobodyKnows(db, lifecycle, [task])
  return (
    name &&
    `Due, but no replica that runs knows its task '${name}': correct the name in its schedule, or start a version that has it.`
  )
}

/** The token of its present lease, or of one that has expired. */
const holderOf = (condition: Condition): string | undefined =>
  condition.kind === 'held' ? condition.by : condition.kind === 'due' ? condition.expired : undefined

async function limitsNeeded(system: System, { lifecycle, document }: Found): Promise<Shown['limits']> {
  const model = modelOf(system, lifecycle)
  const phase = model.phases.get(document['phase'])
  const own = phase?.kind === 'working' ? keyNeedOf(model, document) : undefined
  const needs = [...(phase?.limits ?? []), ...(own ? [own] : [])]
  if (needs.length === 0) return []
  const { limits } = await readLimits(
    system.db,
    needs.map(({ limit }) => limit),
  )
  const ofAll = declaredLimits(system.models)
  return needs.flatMap(({ limit, slots, key }) => {
    const known = limits.find(({ name }) => name === limit)
    const declared = key ? key.slots : ofAll.get(limit)
    if (!known && (key || declared !== undefined)) return [] // all slots are free
    const unset = { name: limit, slots: 0, rate: null, paused: null, holders: [], damaged: null }
    return { ...unset, ...known, needs: slots, declared }
  })
}

async function refusalOf(system: System, { lifecycle, document }: Found): Promise<string | undefined> {
  const model = modelOf(system, lifecycle)
  const terms = (await termsInForce(system.db, [model]))(model)
  return whyNotClaimable(system.db, model.collection, terms, document['_id'])
}
