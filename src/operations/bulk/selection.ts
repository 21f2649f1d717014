import { BSON, type Collection, type Db, type Document, type Filter } from 'mongodb'
import { isServerError } from '../../database/index.js'
import { afterId, isRemovedPhase, readOwnFields, whyNotStorable } from '../../lock/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import { phasesMeant, standing, wantsState } from '../inspect/standing.js'
import { UsageError } from '../system/errors.js'
import { fromExtendedJson } from '../system/extended-json.js'
import { whyNoFilter } from '../system/filter.js'

/** The selection of a lifecycle's documents: those that match all given conditions. */
export interface Selection {
  /** The name of the documents' lifecycle. */
  readonly lifecycle: string
  /** A MongoDB filter. */
  readonly filter?: Document | undefined
  /** Only those in this phase. */
  readonly phase?: string | undefined
  /** Only those whose owner wants this state. */
  readonly state?: string | undefined
  /** Only those that wait for a person. Combined with `failing` or `waiting`, it selects documents with any of these. */
  readonly parked?: boolean | undefined
  /**
   * Only those that are parked because of a bug of the program. Combined with `parked`, `failing` or `waiting`, it selects documents with
   * any of these.
   */
  readonly bugs?: boolean | undefined
  /** Only those whose last step failed and will be tried again. */
  readonly failing?: boolean | undefined
  /** Only those whose handler waits for something. */
  readonly waiting?: boolean | undefined
  /** Only those whose handler waits for what it calls so: `step.wait(reason, { on: 'certificate' })`. */
  readonly on?: string | undefined
  /** Only those that fail or are parked for this cause, as they have recorded it: 12 hex digits. */
  readonly cause?: string | undefined
  /** All documents; requires that nothing else is given. */
  readonly all?: boolean | undefined
}

/** The id of a cause. */
export const CAUSE = /^[a-f\d]{12}$/

/**
 * The filter for a selection: only of documents in the lifecycle's phases, as others may share its collection. Those that are parked, fail or wait
 * are meant as a list shows them: in phases that this version lacks, too.
 * @param anyPhase `phase` may be one that the lifecycle doesn't have
 * @throws UsageError if nothing is given, or both `all` and something else
 */
export async function selectionFilter(
  db: Db,
  model: LifecycleModel,
  { filter, phase, state, cause, all, ...stands }: Selection,
  anyPhase = false,
): Promise<Document> {
  const standingSo = standing(model, stands)
  // An empty filter matches all of them, which has to be requested explicitly.
  const isFiltered = filter !== undefined && Object.keys(filter).length > 0
  const isNarrowed = isFiltered || [phase, state, cause, standingSo].some((one) => one !== undefined)
  if (!isNarrowed && !all)
    throw new UsageError(
      `expected which documents of ${model.name} are meant, got ${filter === undefined ? 'nothing' : 'an empty filter'}`,
      undefined,
      'give filter, phase, state, parked, bugs, failing, waiting, on or cause (--filter, --phase, ...); all (--all) means all of them',
    )
  if (isNarrowed && all) throw new UsageError('expected all (--all) or a filter, got both')
  const own = [...model.phases.keys()]
  if (cause !== undefined && !CAUSE.test(cause))
    throw new UsageError(
      `expected the id of a cause, 12 hex digits, got '${cause}'`,
      undefined,
      'see: phaselock causes',
    )
  const phases = standingSo || cause !== undefined ? await phasesMeant(db, model) : own
  if (phase !== undefined && (!anyPhase || isRemovedPhase(phase)) && !phases.includes(phase))
    throw new UsageError(`expected a phase of ${model.name} (${own.join(', ')}), got '${phase}'`, {
      reason: 'unknownPhase',
      got: phase,
      known: own,
    })
  const parts: Document[] = [phase === undefined ? { phase: { $in: phases } } : { phase }]
  if (state !== undefined) parts.push(wantsState(state))
  if (standingSo) parts.push(standingSo)
  if (cause !== undefined) parts.push({ [`${model.settings.progress}.error.cause`]: cause })
  const problem = filter && (whyNotKept(filter) ?? whyNoFilter(filter))
  if (problem !== undefined) throw new UsageError(`expected a filter that MongoDB can use, got one in which ${problem}`)
  if (isFiltered) parts.push(filter)
  return { $and: parts }
}

/**
 * The reason why an operation can't store this as it is meant; undefined if it can. In a filter `undefined` would mean null or, to a client
 * that ignores it,
 * any value.
 */
export function whyNotKept(document: Document): string | undefined {
  const problem = whyNotStorable(document)
  if (problem !== undefined) return problem
  const [what, ...path] = notKept(document) ?? []
  return what && `'${path.join('.')}' is ${what}`
}

/** The first value that the stored text would lose, with its path. A field called `__proto__` would become the prototype when the text is read. */
function notKept(value: unknown): [what: string, ...path: string[]] | undefined {
  if (typeof value !== 'object' || value === null || '_bsontype' in value || ArrayBuffer.isView(value)) return undefined
  if ('toBSON' in value && typeof value.toBSON === 'function') return notKept(value.toBSON())
  for (const [name, inner] of Object.entries(value)) {
    if (inner === undefined) return ['undefined', name]
    if (name === '__proto__') return ["a name that can't be kept", name]
    const [what, ...path] = notKept(inner) ?? []
    if (what !== undefined) return [what, name, ...path]
  }
  return undefined
}

/** Options to read values with their exact types, so that they can be written back. */
export const EXACT = { promoteValues: false, bsonRegExp: true } as const

/**
 * A document as Extended JSON of exactly what the server would receive. EJSON.stringify alone misreads bytes, and objects with a `toBSON`.
 */
export const storedText = (document: Document): string =>
  BSON.EJSON.stringify(BSON.deserialize(BSON.serialize(document, { ignoreUndefined: false }), EXACT), {
    relaxed: false,
  })
export const fromStoredText = (text: string): Document => fromExtendedJson(text, { relaxed: false }) as Document

const COUNT_WITHIN_MS = 60_000

/**
 * Counts the matching documents, up to one more than `atMost`.
 * @throws UsageError for a filter that the server can't use
 */
export async function countMatching(documents: Collection, filter: Document, atMost: number): Promise<number> {
  try {
    return await documents.countDocuments(filter as Filter<Document>, { limit: atMost + 1, maxTimeMS: COUNT_WITHIN_MS })
  } catch (error) {
    if (!isServerError(error) || error.code === 13) throw error
    throw new UsageError(
      `expected a filter that MongoDB can use, got ${BSON.EJSON.stringify(filter)}: ${error.message}`,
    )
  }
}

/** The next documents in the order of `_id`, with these fields. */
export function nextPage(
  documents: Collection,
  filter: Filter<Document>,
  { after, limit, projection }: { after: { readonly id: unknown } | undefined; limit: number; projection: Document },
): Promise<Document[]> {
  const all = { $and: [filter, ...(after ? [afterId(after.id)] : [])] }
  return readOwnFields((how) => documents.find(all, { projection, sort: { _id: 1 }, limit, ...how }).toArray())
}
