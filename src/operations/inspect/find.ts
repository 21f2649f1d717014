import type { Db, Document, Filter } from 'mongodb'
import {
  type CancelRequest,
  claimOf,
  idKey,
  type Limit,
  namesNobodyKnows,
  PARKED,
  type Pause,
  Paused,
  readLimits,
  readOwnFields,
  whyNotClaimable,
} from '../../lock/index.js'
import { didYouMean } from '../../options/index.js'
import { declaredLimits, keyNeedOf, type LifecycleModel, strayPhases } from '../../phases/index.js'
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
  const inForce = (await inForceIn(db, [model]))(model)
  const pipeline = [
    { $match: filter },
    { $sort: { phase: 1, lockedAt: 1, updatedAt: 1 } },
    { $limit: limit },
    { $project: { _id: 0, document: '$$ROOT', now: '$$NOW' } },
  ]
  const rows = await readOwnFields((how) => db.collection(model.collection).aggregate(pipeline, how).toArray())
  const judge = judging(model, inForce)
  return (rows as { document: Document; now: Date }[]).map(({ document, now }) => judge(document, now))
}

/** Judges documents of a lifecycle by what is in force. */
export function judging(
  model: LifecycleModel,
  { terms, pauses: all, cancels }: InForce,
): (document: Document, now: Date) => Found {
  const { lockTimeoutMs } = terms
  const paused = new Paused(all)
  return (document, now) => {
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
  return { ...found, explanation, refusal, holder, limits, children, parent }
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

/** The troubles that a list can show of the documents that match the rest: documents with any of these. */
export const TROUBLES = ['parked', 'bugs', 'failing', 'waiting'] as const
export type Trouble = (typeof TROUBLES)[number]

export interface ListOptions {
  /** The lifecycle. Default: all. */
  readonly lifecycle?: string | undefined
  readonly phase?: string | undefined
  /** The state that the owner wants. */
  readonly state?: string | undefined
  /** Only those that wait for a person. */
  readonly parked?: boolean | undefined
  /**
   * Only those that wait for a person because of a bug of the program: a step returned no outcome, or called Phaselock with invalid
   * arguments.
   */
  readonly bugs?: boolean | undefined
  /** Only those whose last step failed and will be tried again. */
  readonly failing?: boolean | undefined
  /** Only those whose handler waits for something. */
  readonly waiting?: boolean | undefined
  /** Only those whose handler waits under this name: `step.wait(reason, { on: 'certificate' })`. */
  readonly on?: string | undefined
  /** At most this many. Default 50. */
  readonly limit?: number | undefined
}

/**
 * Documents and their conditions, by lifecycle and in the order of the claim index; `more` is true if there are others.
 * @example await listDocuments(system, { parked: true }) // { documents: [{ lifecycle: 'order', document, condition, ... }], more: false }
 * @throws UsageError for an unknown lifecycle, or a phase that neither it nor any document has
 */
export async function listDocuments(
  system: System,
  { lifecycle, phase, state, on, limit = 50, ...troubles }: ListOptions = {},
): Promise<{ readonly documents: readonly Found[]; readonly more: boolean }> {
  const models = lifecycle === undefined ? system.models : [modelOf(system, lifecycle)]
  const all = await Promise.all(
    models.map(async (model) => {
      const stands = standing(model, { on, ...troubles })
      // By the claim index, in which a phase comes first.
      const own = stands && phase === undefined ? await phasesMeant(system.db, model) : []
      const filter: Filter<Document> = {
        ...(phase !== undefined ? { phase } : stands && { phase: { $in: own } }),
        ...(state !== undefined && wantsState(state)),
        ...stands,
      }
      return readDocuments(system, model, filter, limit + 1)
    }),
  )
  const found = all.flat()
  const known = [...new Set(models.flatMap((model) => [...model.phases.keys()]))]
  if (found.length === 0 && phase !== undefined && !known.includes(phase)) {
    throw new UsageError(
      `expected a phase of ${models.map(({ name }) => name).join(', ')} (${known.join(', ')}), got '${phase}'${didYouMean(phase, known)}`,
      { reason: 'unknownPhase', got: phase, known },
    )
  }
  return { documents: found.slice(0, limit), more: found.length > limit }
}

const NOT_PARKED: Filter<Document> = { $nor: [PARKED] }
/** The filters for documents with a trouble. */
const inTrouble: Readonly<Record<Trouble, (progress: string) => Filter<Document>>> = {
  parked: () => PARKED,
  bugs: (progress) => ({ [`${progress}.error.bugs`]: { $gte: 1 }, ...PARKED }),
  failing: (progress) => ({ [`${progress}.error`]: { $type: 'object' }, ...NOT_PARKED }),
  waiting: (progress) => ({ [`${progress}.waitingFor`]: { $type: 'string' }, ...NOT_PARKED }),
}

/** How documents stand, as lists and operations ask for it. */
export type Standing = Pick<ListOptions, Trouble | 'on'>

/** The filter for how documents stand, in any phase; undefined: nothing is asked of that. */
export function standing(
  { settings: { progress } }: LifecycleModel,
  { on, ...troubles }: Standing,
): Filter<Document> | undefined {
  const asked = TROUBLES.filter((trouble) => troubles[trouble])
  if (asked.length === 0 && on === undefined) return undefined
  return {
    ...(on !== undefined && { [`${progress}.waitingOn`]: { $eq: on }, ...NOT_PARKED }),
    ...(asked.length > 0 && { $or: asked.map((trouble) => inTrouble[trouble](progress)) }),
  }
}

/** The documents whose owner wants a state, as a filter. */
export const wantsState = (state: string): Filter<Document> => ({ state: { $eq: state, $not: { $type: 'array' } } })

/** In which phases a lifecycle's documents are: its own, and those that this version lacks. */
export const phasesMeant = async (db: Db, model: LifecycleModel): Promise<string[]> => [
  ...model.phases.keys(),
  ...(await strayPhases(db, model)),
]
