import type { Document } from 'mongodb'

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
