import type { Document, Filter } from 'mongodb'
import { PARKED } from '../lock/index.js'
import { didYouMean } from '../options/index.js'
import { UsageError } from './errors.js'
import { type Found, readDocuments } from './find.js'
import { modelOf, type System } from './system.js'

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
