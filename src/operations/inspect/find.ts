import type { Document, Filter } from 'mongodb'
import {
  type CancelRequest,
  claimOf,
  idKey,
  leaseStateOf,
  type Pause,
  Paused,
  readOwnFields,
  type Terms,
} from '../../lock/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import { idSpelt, idsMeantBy } from '../system/document-id.js'
import { NotFound, Refused, UsageError } from '../system/errors.js'
import { type InForce, inForceIn, modelOf, type System } from '../system/system.js'
import { type Condition, conditionOf } from './condition.js'
import { explain, whyOf, whyPaused } from './explain.js'

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

/**
 * Documents of a lifecycle in the order of the claim index.
 * @param inForce what they are judged by. Default: it is read
 */
export async function readDocuments(
  { db }: System,
  model: LifecycleModel,
  filter: Filter<Document>,
  limit: number,
  inForce?: InForce,
): Promise<Found[]> {
  const asFound = foundIn(model, inForce ?? (await inForceIn(db, [model]))(model))
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

/** The token that a document is held under, in whatever phase it is: one that this version lacks may be another version's. */
export function holderOf({ document, now }: Found, terms: Terms): string | undefined {
  const state = leaseStateOf(document, terms, now)
  return state.kind === 'held' ? state.by : undefined
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
  ref: DocumentRef,
): Promise<Found & { readonly also: readonly Found[] }> {
  const { found, also } = await findJudged(system, ref)
  return { ...found, also }
}

/** The same, with what it was judged by. */
export async function findJudged(
  system: System,
  { id, lifecycle }: DocumentRef,
): Promise<{ readonly found: Found; readonly also: readonly Found[]; readonly inForce: InForce }> {
  const models = lifecycle === undefined ? system.models : [modelOf(system, lifecycle)]
  const ids = idsMeantBy(id)
  const inForceOf = await inForceIn(system.db, models)
  const all = await Promise.all(
    models.map((model) => readDocuments(system, model, { _id: { $in: ids as never[] } }, ids.length, inForceOf(model))),
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
  if (meant.length === 1) {
    const [only] = found as [Found]
    return { found: only, also: others.flat(), inForce: inForceOf(modelOf(system, only.lifecycle)) }
  }
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
