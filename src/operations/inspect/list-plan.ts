import type { Collection, Db, Document, Filter } from 'mongodb'
import {
  hasIndex,
  isAsking,
  leaseStateExpression,
  orderIndex,
  PARKED,
  readOwnFields,
  removedPhase,
  searchIndex,
  type Terms,
} from '../../lock/index.js'
import { type LifecycleModel, strayPhases } from '../../phases/index.js'
import { durationMs } from '../../time/index.js'
import { idsMeantBy } from '../system/document-id.js'
import { UsageError } from '../system/errors.js'
import { whyNoFilter } from '../system/filter.js'
import type { ListPlan } from './list-reader.js'
import { leaseRange, phasesMeant, type Standing, standing, wantsState } from './standing.js'

/** The conditions that documents can be listed by. Broken ones are found by the check of a database. */
export const LISTED_CONDITIONS = [
  ...(['due', 'held', 'sleeping', 'asking', 'parked'] as const),
  ...(['resting', 'final', 'removed', 'unknownPhase'] as const),
] as const
export type ListedCondition = (typeof LISTED_CONDITIONS)[number]

/** Which documents a list has, in which order, and how much of each. */
export interface ListFilters extends Standing {
  readonly phase?: string | undefined
  /** The state that the owner wants. */
  readonly state?: string | undefined
  /** Only those in this condition. */
  readonly condition?: ListedCondition | undefined
  /** Only those whose last step failed, or that are parked, for this cause: 12 hex digits. */
  readonly cause?: string | undefined
  /** Only those with this value of the field of the lifecycle's `limitBy`, as people write it. */
  readonly key?: string | undefined
  /** Only those for which nothing has been recorded for so long: a duration. */
  readonly olderThan?: string | undefined
  /** A filter of MongoDB with a value of one of the lifecycle's fields for lists (`search`). */
  readonly filter?: Document | undefined
  /** `newest`: the other way round. Default `oldest`: by phase, then by when they are due, then by when they were last recorded. */
  readonly order?: 'oldest' | 'newest' | undefined
  /** If true, with the owner's fields. Default: only the fields that Phaselock uses. */
  readonly payload?: boolean | undefined
}

const AFTER_EPOCH: Filter<Document> = { lockedAt: { $gt: new Date(0) } }

/**
 * The part of an index that has the documents of a list.
 * @throws UsageError for a filter that no index serves, with what would serve it
 */
export async function planOf(db: Db, model: LifecycleModel, terms: Terms, filters: ListFilters): Promise<ListPlan> {
  const { phase, state, condition, cause, olderThan, filter, ...stands } = filters
  const collection = db.collection(model.collection)
  const standingSo = standing(model, stands)
  const errorCause = cause === undefined ? undefined : { [`${terms.progress}.error.cause`]: cause }
  const searched = filter && searchedBy(model, filter)
  const causeIndex = errorCause && { [`${terms.progress}.error.cause`]: 1, phase: 1 }
  const byCause = causeIndex && !searched && (await hasIndex(collection, causeIndex)) ? causeIndex : undefined
  const keyed = filters.key === undefined ? undefined : await keyMeant(collection, model, filters.key)

  const phases = await phaseFilter(db, model, filters, standingSo !== undefined || errorCause !== undefined)
  const leases = [standingSo && leaseRange(stands), condition && LEASES[condition], errorCause && AFTER_EPOCH]
  const rest = [
    standingSo,
    state === undefined ? undefined : wantsState(state),
    condition && conditionFilter(condition, terms),
    olderThan === undefined ? undefined : recordedBefore(durationMs(olderThan, 'olderThan')),
  ]
  const common = { direction: filters.order === 'newest' ? -1 : 1, projection: projectionOf(model, filters) } as const
  if (searched) {
    const { field, value, others } = searched
    const all = [...rest, ...leases, phases, errorCause, keyed?.where, others]
    return { ...common, index: searchIndex(field), order: 'id', range: { [field]: value }, rest: and(all) }
  }
  if (byCause)
    return {
      ...common,
      index: byCause,
      order: 'ties',
      range: and([errorCause, phases])!,
      rest: and([...rest, keyed?.where]),
    }
  const range = and([keyed?.where, phases, ...leases]) ?? {}
  return { ...common, index: keyed?.index, order: 'lease', range, rest: and([...rest, errorCause]) }
}

const and = (parts: readonly (Filter<Document> | undefined)[]): Filter<Document> | undefined => {
  const given = parts.filter((part) => part !== undefined)
  return given.length > 1 ? { $and: given } : given[0]
}

async function phaseFilter(
  db: Db,
  model: LifecycleModel,
  { phase, condition }: ListFilters,
  inAny: boolean,
): Promise<Filter<Document> | undefined> {
  const ofKind = (kind: string) => [...model.phases.values()].filter((one) => one.kind === kind).map(({ name }) => name)
  const asked = phase === undefined ? undefined : { phase }
  switch (condition) {
    case 'resting':
    case 'final':
      return and([asked, { phase: { $in: ofKind(condition) } }])
    case 'due':
    case 'sleeping':
    case 'asking':
      return and([asked, { phase: { $in: ofKind('working') } }])
    case 'removed':
      return and([asked, { phase: removedPhase(model.name) }])
    case 'unknownPhase':
      return and([asked, { phase: { $in: await strayPhases(db, model) } }])
    default:
      return asked ?? (inAny || condition ? { phase: { $in: await phasesMeant(db, model) } } : undefined)
  }
}

/** The part of the claim index that has the documents in a condition. */
const LEASES: Partial<Record<ListedCondition, Filter<Document>>> = {
  parked: PARKED,
  held: AFTER_EPOCH,
  sleeping: AFTER_EPOCH,
  asking: AFTER_EPOCH,
}

function conditionFilter(condition: ListedCondition, terms: Terms): Filter<Document> | undefined {
  const is = (state: string) => ({ $eq: [leaseStateExpression(terms), state] })
  switch (condition) {
    case 'due':
    case 'held':
      return { $expr: is(condition) }
    case 'sleeping':
      return { $expr: { $and: [is('asleep'), { $not: [isAsking(terms)] }] } }
    case 'asking':
      return { $expr: { $and: [is('asleep'), isAsking(terms)] } }
    case 'resting':
    case 'final':
    case 'unknownPhase':
      return { $expr: { $not: [{ $or: [is('parked'), is('held')] }] } }
    default:
      return undefined
  }
}

const recordedBefore = (ms: number): Filter<Document> => ({
  updatedAt: { $type: 'date' },
  $expr: { $lte: ['$updatedAt', { $subtract: ['$$NOW', ms] }] },
})

/** The value of a field that an index serves, and the rest of a filter. @throws UsageError if there is none */
function searchedBy({ name, settings: { search = [] } }: LifecycleModel, filter: Document) {
  const problem = whyNoFilter(filter)
  if (problem !== undefined) throw new UsageError(`expected a filter that MongoDB can use, got one in which ${problem}`)
  const values = Object.entries(filter).map(([field, value]) => [field, valueMeant(value)] as const)
  const [field, meant] = values.find(([one, value]) => search.includes(one) && value !== undefined) ?? []
  if (field !== undefined && meant) {
    const { [field]: _, ...others } = filter
    return { field, value: meant.value, others: Object.keys(others).length > 0 ? others : undefined }
  }
  const fields = values.map(([one]) => one).filter((one) => !one.startsWith('$') && !one.includes('.'))
  const would = [...search, ...fields].slice(0, 5).map((one) => `'${one}'`)
  throw new UsageError(
    search.length > 0
      ? `expected a filter with a value of ${search.join(' or ')}, got one that no index of ${name} serves`
      : `no index serves a filter of ${name}`,
    undefined,
    `it would read the whole collection; search: [${would.join(', ')}] in the lifecycle's settings makes ${would.length === 1 ? 'an index' : 'indexes'}`,
  )
}

/** The value that a field has to have; undefined: an operator is in the filter instead. */
function valueMeant(value: unknown): { readonly value: unknown } | undefined {
  if (typeof value !== 'object' || value === null || '_bsontype' in value || value instanceof Date) return { value }
  const names = Object.keys(value)
  if (names.length === 1 && names[0] === '$eq') return { value: (value as Document)['$eq'] }
  return value instanceof RegExp || names.some((name) => name.startsWith('$')) ? undefined : { value }
}

/** The value of the field of `limitBy` that is meant, of those that the text may mean the first that a document has. */
async function keyMeant(collection: Collection, { name, settings: { limitBy } }: LifecycleModel, key: string) {
  if (limitBy === undefined)
    throw new UsageError(
      `key (--key): expected a lifecycle with limitBy, got ${name}, which has no limits of single values`,
    )
  const index = orderIndex(limitBy)
  const meant = idsMeantBy(key)
  for (const value of meant) {
    const where = { [limitBy]: { $eq: value } } as Filter<Document>
    const options = { projection: { _id: 1 }, hint: index, limit: 1 }
    const found = await readOwnFields((how) => collection.find(where, { ...options, ...how }).toArray())
    if (found.length > 0) return { index, where }
  }
  return { index, where: { [limitBy]: { $eq: meant[0] } } as Filter<Document> }
}

/** The fields that Phaselock uses, and those that the lifecycle orders or lists its documents by. */
function projectionOf({ settings }: LifecycleModel, { payload }: ListFilters): Document | undefined {
  if (payload) return undefined
  const { progress, priorityBy, fairBy, limitBy, search = [] } = settings
  const own = ['phase', 'state', 'lockedAt', 'lockedBy', 'fence', 'updatedAt', 'createdAt', progress]
  const named = [priorityBy, fairBy, limitBy].flatMap((field) => field ?? [])
  return Object.fromEntries(['_id', ...own, ...named, ...search].map((field) => [field, 1]))
}
