import type { Document } from 'mongodb'
import type { CensusReader } from '../../lock/index.js'

/** The bounds of the interval of a census that somebody looks at. */
export const LEAST_CENSUS_MS = 5_000
const MOST_CENSUS_MS = 300_000

/** The interval as a multiple of the cost: of one core, metrics take 1 % at most, and people who look 3 %. */
const TIMES: Readonly<Record<CensusReader, number>> = { people: 30, metrics: 100 }

/**
 * The interval of a lifecycle's census, in milliseconds: by its cost while somebody looks, otherwise as rare as it may be.
 * @param costMs the time that the censuses of all lifecycles took last, together
 * @param rareMs the interval while nobody looks
 * @example censusEveryMs(400, 'metrics', 300_000) // 40_000
 */
export function censusEveryMs(costMs: number, reader: CensusReader | undefined, rareMs: number): number {
  if (!reader) return rareMs
  return Math.min(Math.max(LEAST_CENSUS_MS, Math.ceil(costMs * TIMES[reader])), Math.min(rareMs, MOST_CENSUS_MS))
}

/** The same for the server, by the duty's own document: a replica may not know what the last census cost. */
export function censusEvery(reader: CensusReader | undefined, rareMs: number): Document | number {
  if (!reader) return rareMs
  const isNumber = (path: string) => ({ $cond: [{ $isNumber: path }, path, 0] })
  const costMs = { $max: [isNumber('$found.costMs'), isNumber('$tookMs')] }
  const byCost = { $max: [LEAST_CENSUS_MS, { $ceil: { $multiply: [costMs, TIMES[reader]] } }] }
  return { $min: [byCost, Math.min(rareMs, MOST_CENSUS_MS)] }
}
