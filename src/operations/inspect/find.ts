import type { Document, Filter } from 'mongodb'
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
import { declaredLimits, keyNeedOf, type LifecycleModel } from '../../phases/index.js'
import { idSpelt, idsMeantBy } from '../system/document-id.js'
import { NotFound, Refused, UsageError } from '../system/errors.js'
import { inForceIn, modelOf, runsOf, type System, termsInForce } from '../system/system.js'
import { type ChildrenShown, childrenOf, type ParentShown, parentOf } from './children.js'
import { type Condition, conditionOf } from './condition.js'
import { strayPhases } from './count.js'
import { explain, whyOf, whyPaused } from './explain.js'
import { holderNamedBy, type ReplicaState } from './replicas.js'

export interface DocumentRef {
  /** Its `_id` as people write it: `shop`, `42`, `66f0...`, `ObjectId("...")`, or Extended JSON: `{"$oid": "..."}`, `"42"`. */
  readonly id: string
  /** Looked for in this lifecycle only. Default: in all. */
  readonly lifecycle?: string | undefined
}

/** A document, and what it is doing. */
export interface Found {
  readonly lifecycle: string
  readonly document: Document
  readonly condition: Condition
  /** The condition in one sentence for people. */
  readonly explanation: string
  /** Why it waits, failed or is parked, in a few words; undefined: there is nothing to say, or it isn't stored. */
  readonly why: string | undefined
  /** The widest pause that keeps its next step from beginning; undefined: there is none. */
  readonly pause: Pause | undefined
  /** The server's time of the read, by which everything is judged. */
  readonly now: Date
}

/** Documents of a lifecycle in the order of the claim index. */
export async function readDocuments(
  { db }: System,
  model: LifecycleModel,
  filter: Filter<Document>,
  limit: number,
): Promise<Found[]> {
  const { terms, pauses, cancels } = (await inForceIn(db, [model]))(model)
  const { lockTimeoutMs } = terms
  const paused = new Paused(pauses)
  const pipeline = [
    { $match: filter },
    { $sort: { phase: 1, lockedAt: 1, updatedAt: 1 } },
    { $limit: limit },
    { $project: { _id: 0, document: '$$ROOT', now: '$$NOW' } },
  ]
  const rows = await readOwnFields((how) => db.collection(model.collection).aggregate(pipeline, how).toArray())
  return (rows as { document: Document; now: Date }[]).map(({ document, now }) => {
    const condition = conditionOf(document, model, now, lockTimeoutMs)
    const pauses = paused.of(document['phase'], document['_id'])
    const [pause] = pauses
    const cancel = condition.kind === 'held' ? cancelOf(document['_id'], condition.by, cancels) : undefined
    const explanation = explain(document, model, now, lockTimeoutMs, { pauses, cancel })
    const why = pause ? pauses.map(whyPaused).join('; ') : whyOf(document, model, condition, now)
    return { lifecycle: model.name, document, condition, explanation, why, pause, now }
  })
}

/** What its owner has asked of the holder of a document. */
const cancelOf = (id: unknown, by: string, cancels: readonly CancelRequest[]): CancelRequest | undefined =>
  cancels.find(({ _id, claim }) => claim === claimOf(by) && idKey(_id) === idKey(id))

/**
 * A document by its `_id`; `also`: those of other lifecycles with the same one, such as its children.
 * @throws NotFound; UsageError where the id matches several documents of one lifecycle (a number and a string)
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
 * The one document that is to be changed.
 * @param removed also one that is removed, and has only its callbacks to tell
 * @throws NotFound; Refused where it is removed; UsageError where several have the `_id`, of one lifecycle or of several
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

/** A limit, and how many of its slots a document needs. */
export interface LimitShown extends Limit {
  readonly needs: number
  /** How many there are where nobody sets another number: of a key, or as lifecycles declare; undefined: they don't, or any number. */
  readonly declared: number | undefined
}

/** One document, as a person wants to see it. */
export interface Shown extends Found {
  /** Why the server lets no replica write it, though it is due; undefined: it does. */
  readonly refusal: string | undefined
  /** Who holds it, or held it last where that lease has run out; undefined: nobody, or no replica that is listed. */
  readonly holder: ReplicaState | undefined
  /** The limits that its phase needs, where it is due: it waits for a slot if one has none free. */
  readonly limits: readonly LimitShown[]
  /** What became of the children that its steps have inserted; undefined: they have inserted none. */
  readonly children: ChildrenShown | undefined
  /** Whose child it is; undefined: nobody's. */
  readonly parent: ParentShown | undefined
  /** Those of other lifecycles with the same `_id`. */
  readonly also: readonly Found[]
}

/**
 * One document: what it waits for in one sentence, its fields and its history.
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

/** Of a schedule's run whose task no live replica knows: that, in place of what other due documents wait for. */
async function unknownTaskOf({ db, collections }: System, { lifecycle, condition, document }: Found) {
  const { task } = document
  if (condition.kind !== 'due' || typeof task !== 'string' || lifecycle !== runsOf(collections)) return undefined
  const [name] = await namesNobodyKnows(db, lifecycle, [task])
  return (
    name &&
    `Due, but no replica that runs knows its task '${name}': correct the name in its schedule, or start a version that has it.`
  )
}

/** The token of the lease that it is under, or that has run out. */
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
    if (!known && (key || declared !== undefined)) return [] // nobody has any of it
    const unset = { name: limit, slots: 0, rate: null, paused: null, holders: [], damaged: null }
    return { ...unset, ...known, needs: slots, declared }
  })
}

async function refusalOf(system: System, { lifecycle, document }: Found): Promise<string | undefined> {
  const model = modelOf(system, lifecycle)
  const terms = (await termsInForce(system.db, [model]))(model)
  return whyNotClaimable(system.db, model.collection, terms, document['_id'])
}

/** What a list shows of the documents that match the rest: those with any of these. */
export const TROUBLES = ['parked', 'bugs', 'failing', 'waiting'] as const
export type Trouble = (typeof TROUBLES)[number]

export interface ListOptions {
  /** Default: all. */
  readonly lifecycle?: string | undefined
  readonly phase?: string | undefined
  /** What the owner wants. */
  readonly state?: string | undefined
  /** Those that wait for a person. */
  readonly parked?: boolean | undefined
  /** Those that wait for a person because of a bug of the program, as a step returned no outcome, or called Phaselock with what it doesn't take. */
  readonly bugs?: boolean | undefined
  /** Those whose last step failed, and is tried again. */
  readonly failing?: boolean | undefined
  /** Those whose handler waits for something. */
  readonly waiting?: boolean | undefined
  /** Those whose handler waits for what it calls so: `step.wait(reason, { on: 'certificate' })`. */
  readonly on?: string | undefined
  /** At most this many. Default 50. */
  readonly limit?: number | undefined
}

/**
 * Documents and what they do, by lifecycle and in the order of the claim index; `more`: there are others.
 * @example await listDocuments(system, { parked: true }) // { documents: [{ lifecycle: 'order', document, condition, ... }], more: false }
 * @throws UsageError for an unknown lifecycle, or a phase that neither it nor any document has
 */
export async function listDocuments(
  system: System,
  { lifecycle, phase, state, on, limit = 50, ...troubles }: ListOptions = {},
): Promise<{ readonly documents: readonly Found[]; readonly more: boolean }> {
  const models = lifecycle === undefined ? system.models : [modelOf(system, lifecycle)]
  const asked = TROUBLES.filter((trouble) => troubles[trouble])
  const all = await Promise.all(
    models.map(async (model) => {
      const isNarrow = asked.length > 0 || on !== undefined
      // By the claim index, in which a phase comes first: parked documents in phases that this version lacks, too.
      const own =
        isNarrow && phase === undefined ? [...model.phases.keys(), ...(await strayPhases(system.db, model))] : []
      const filter: Filter<Document> = {
        ...(phase !== undefined ? { phase } : isNarrow && { phase: { $in: own } }),
        ...(state !== undefined && { state: { $eq: state, $not: { $type: 'array' } } }),
        ...(on !== undefined && { [`${model.settings.progress}.waitingOn`]: { $eq: on }, ...NOT_PARKED }),
        ...(asked.length > 0 && { $or: asked.map((trouble) => inTrouble[trouble](model.settings.progress)) }),
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
/** The documents that have a trouble, as a filter. */
export const inTrouble: Readonly<Record<Trouble, (progress: string) => Filter<Document>>> = {
  parked: () => PARKED,
  bugs: (progress) => ({ [`${progress}.error.bugs`]: { $gte: 1 }, ...PARKED }),
  failing: (progress) => ({ [`${progress}.error`]: { $type: 'object' }, ...NOT_PARKED }),
  waiting: (progress) => ({ [`${progress}.waitingFor`]: { $type: 'string' }, ...NOT_PARKED }),
}
