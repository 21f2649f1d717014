import { type Collection, type Document, MongoServerError } from 'mongodb'
import { isServerError } from '../../database/index.js'
import { CLAIM_INDEX } from '../terms/terms.js'

/** Takes the claim index's place while that is rebuilt: it has the same order, so a look reads the same keys. */
export const STAND_IN_INDEX = { ...CLAIM_INDEX, _id: 1 } as const

export type ClaimIndex = typeof CLAIM_INDEX | typeof STAND_IN_INDEX

/**
 * The claim index for each value of a field. The field comes first, so that the planner never takes it for a look at a phase, which
 * names no index.
 */
export const orderIndex = (field: string) => ({ [field]: 1, phase: 1, lockedAt: 1, updatedAt: 1 }) as const
export type OrderIndex = ReturnType<typeof orderIndex>

const BAD_VALUE = 2
const QUERY_PLAN_KILLED = 175

/** A query names an index of the protocol that isn't there. That is an error, never a scan: nothing is read until it is back. */
export class MissingIndex extends MongoServerError {
  constructor(collection: string, key: Document) {
    const what = `${collection} has no index ${JSON.stringify(key)}, and nothing is read from it without one`
    const remedy = "to create it, run phaselock check --repair, or restart a replica with indexes: 'create'"
    super({ message: `${what}; ${remedy}`, code: BAD_VALUE })
  }

  override get name(): string {
    return 'MissingIndex'
  }
}

/**
 * Runs a query that names an index.
 * @throws MissingIndex if it isn't there
 */
export async function onIndex<K extends Document, T>(
  { collectionName }: Pick<Collection, 'collectionName'>,
  key: K,
  use: (index: K) => Promise<T>,
): Promise<T> {
  try {
    return await use(key)
  } catch (error) {
    throw namesMissingIndex(error) ? new MissingIndex(collectionName, key) : error
  }
}

/**
 * Runs a query that names the claim index. If the server says that the index isn't there, or was dropped during the query, tries
 * its stand-in, and then the index itself once more, which may be back.
 * @throws the last error: MissingIndex if neither is there
 */
export async function onClaimIndex<T>(
  collection: Pick<Collection, 'collectionName'>,
  use: (index: ClaimIndex) => Promise<T>,
): Promise<T> {
  for (const index of [CLAIM_INDEX, STAND_IN_INDEX]) {
    try {
      return await use(index)
    } catch (error) {
      const wasKilled = isServerError(error, QUERY_PLAN_KILLED)
      if (!wasKilled && !namesMissingIndex(error)) throw error
    }
  }
  return onIndex(collection, CLAIM_INDEX, use)
}

/** True if a query was refused because the index that it names isn't there; one that is already reading the index is killed instead. */
const namesMissingIndex = (error: unknown): boolean =>
  isServerError(error, BAD_VALUE) && /\bhint\b/i.test(error.message)

/** Parts of an explain that hold no chosen plan, or hold it in another form. */
const NOT_A_PLAN = new Set([
  'rejectedPlans',
  'slotBasedPlan',
  'parsedQuery',
  'command',
  'executionStats',
  'filter',
  'transformBy',
  'originatingCommand',
  'serverInfo',
  'serverParameters',
])
const SCANS = new Set(['COLLSCAN', 'IXSCAN', 'EXPRESS_IXSCAN', 'COUNT_SCAN', 'DISTINCT_SCAN', 'CLUSTERED_IXSCAN'])
const NOTHING_TO_READ = 'EOF'

/**
 * The stages of the chosen plans in an explain, wherever the server puts them: `queryPlanner.winningPlan` (classic),
 * `.queryPlan` below it (slot-based), `stages[].$cursor` (aggregates), `shards` (sharded).
 */
export function stagesOf(explain: unknown): Document[] {
  if (Array.isArray(explain)) return explain.flatMap(stagesOf)
  if (typeof explain !== 'object' || explain === null) return []
  const node = explain as Document
  const below = Object.entries(node).flatMap(([key, value]) => (NOT_A_PLAN.has(key) ? [] : stagesOf(value)))
  return typeof node['stage'] === 'string' ? [node, ...below] : below
}

/** Lists the problems of an explain: anything but scans of the index with this key that are bounded in its first fields; empty: no problem. */
export function boundedScanProblems(explain: Document, index: Document, boundedFields = 2): string[] {
  const stages = stagesOf(explain)
  const scans = stages.filter((stage) => SCANS.has(stage['stage']))
  const problems = scans.flatMap((scan) => scanProblem(scan, index, boundedFields) ?? [])
  if (stages.some((stage) => stage['stage'] === 'SORT')) problems.push('a blocking sort')
  const readsNothing = stages.some((stage) => stage['stage'] === NOTHING_TO_READ)
  if (scans.length === 0 && !readsNothing) problems.push('no index scan in its plan')
  return problems
}

/** The number of keys and documents that the chosen plan read, by an explain with `executionStats`; undefined: it doesn't say. */
export function readByPlan(explain: unknown): number | undefined {
  if (typeof explain !== 'object' || explain === null) return undefined
  const { totalKeysExamined: keys, totalDocsExamined: documents } = explain as Document
  if (typeof keys === 'number' && typeof documents === 'number') return keys + documents
  const below = Object.values(explain).flatMap((value) => readByPlan(value) ?? [])
  return below.length > 0 ? below.reduce((sum, one) => sum + one, 0) : undefined
}

function scanProblem(scan: Document, index: Document, boundedFields: number): string | undefined {
  const name = `${scan['stage']} of ${scan['indexName'] ?? 'the whole collection'}`
  if (scan['stage'] === 'COLLSCAN') return name
  if (JSON.stringify(scan['keyPattern']) !== JSON.stringify(index)) return name
  const open = openFields(scan, Object.keys(index).slice(0, boundedFields))
  return open.length === 0 ? undefined : `${name} without bounds on ${open.join(' and ')}`
}

/** The fields whose every value the scan reads. A scan by min/max has its bounds as keys, or shows none here. */
function openFields(scan: Document, fields: readonly string[]): string[] {
  const bounds: Document = scan['indexBounds'] ?? {}
  return fields.filter((field) => [bounds[field]].flat().some((one) => /^\[MinKey, MaxKey\]$/i.test(String(one))))
}
