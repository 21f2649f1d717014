import { BSON, type Document, type Filter } from 'mongodb'
import { PARKED, readOwnFields, whyNotClaimable } from '../lock/index.js'
import { didYouMean } from '../options/index.js'
import type { LifecycleModel } from '../phases/index.js'
import { type Condition, conditionOf } from './condition.js'
import { idsMeantBy } from './document-id.js'
import { NotFound, UsageError } from './errors.js'
import { explain } from './explain.js'
import { modelOf, type System, termsInForce } from './system.js'

export interface DocumentRef {
  /** Its `_id` as people write it: `shop`, `42`, `66f0...`, `ObjectId("...")`, or Extended JSON: `{"$oid": "..."}`, `"42"`. */
  readonly id: string
  /** Looked for in this lifecycle only. Default: the first one that has it. */
  readonly lifecycle?: string | undefined
}

/** A document, and what it is doing. */
export interface Found {
  readonly lifecycle: string
  readonly document: Document
  readonly condition: Condition
  /** The condition in one sentence for people. */
  readonly explanation: string
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
  const { lockTimeoutMs } = (await termsInForce(db, [model]))(model)
  const pipeline = [
    { $match: filter },
    { $sort: { phase: 1, lockedAt: 1, updatedAt: 1 } },
    { $limit: limit },
    { $project: { _id: 0, document: '$$ROOT', now: '$$NOW' } },
  ]
  const rows = await readOwnFields((how) => db.collection(model.collection).aggregate(pipeline, how).toArray())
  return (rows as { document: Document; now: Date }[]).map(({ document, now }) => ({
    lifecycle: model.name,
    document,
    condition: conditionOf(document, model, now, lockTimeoutMs),
    explanation: explain(document, model, now, lockTimeoutMs),
    now,
  }))
}

/**
 * The document that is meant; `also`: those of other lifecycles with the same `_id`, such as its children.
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
      lifecycle === undefined
        ? '--lifecycles <module> names those of your own'
        : 'leave out --lifecycle to look in all',
    )
  }
  const meant = found.map(({ document }) => document['_id'] as unknown)
  if (meant.length === 1) return { ...found[0]!, also: others.flat() }
  throw new UsageError(
    `the _id ${id} means ${meant.length} documents`,
    { reason: 'ambiguousId', id, meant },
    `give it as one of: ${meant.map((one) => BSON.EJSON.stringify(one, { relaxed: true })).join(', ')}`,
  )
}

/** One document, as a person wants to see it. */
export interface Shown extends Found {
  /** Why the server lets no replica write it, though it is due; undefined: it does. */
  readonly refusal: string | undefined
  /** Those of other lifecycles with the same `_id`. */
  readonly also: readonly Found[]
}

/**
 * One document: what it waits for in one sentence, its fields and its history.
 * @example (await showDocument(system, { id: 'shop' })).explanation // Sleeps until 2026-01-01T10:00:05.000Z (in 3 s), ...
 * @throws NotFound, UsageError
 */
export async function showDocument(system: System, ref: DocumentRef): Promise<Shown> {
  const found = await findDocument(system, ref)
  return { ...found, refusal: found.condition.kind === 'due' ? await refusalOf(system, found) : undefined }
}

async function refusalOf(system: System, { lifecycle, document }: Found): Promise<string | undefined> {
  const model = modelOf(system, lifecycle)
  const terms = (await termsInForce(system.db, [model]))(model)
  return whyNotClaimable(system.db, model.collection, terms, document['_id'])
}

export interface ListOptions {
  readonly lifecycle: string
  readonly phase?: string | undefined
  /** What the owner wants. */
  readonly state?: string | undefined
  /** Only those that wait for a person. */
  readonly parked?: boolean | undefined
  /** At most this many. Default 50. */
  readonly limit?: number | undefined
}

/**
 * Documents of a lifecycle and what they do, in the order of the claim index; `more`: there are others.
 * @example await listDocuments(system, { lifecycle: 'order', parked: true }) // { documents: [{ document, condition, ... }], more: false }
 * @throws UsageError for an unknown lifecycle, or a phase that neither it nor any document has
 */
export async function listDocuments(
  system: System,
  { lifecycle, phase, state, parked = false, limit = 50 }: ListOptions,
): Promise<{ readonly documents: readonly Found[]; readonly more: boolean }> {
  const model = modelOf(system, lifecycle)
  const known = [...model.phases.keys()]
  const filter: Filter<Document> = {
    ...(phase !== undefined ? { phase } : parked && { phase: { $in: known } }),
    ...(state !== undefined && { state: { $eq: state, $not: { $type: 'array' } } }),
    ...(parked && PARKED),
  }
  const found = await readDocuments(system, model, filter, limit + 1)
  if (found.length === 0 && phase !== undefined && !known.includes(phase)) {
    throw new UsageError(
      `expected a phase of ${lifecycle} (${known.join(', ')}), got '${phase}'${didYouMean(phase, known)}`,
      { reason: 'unknownPhase', got: phase, known },
    )
  }
  return { documents: found.slice(0, limit), more: found.length > limit }
}
