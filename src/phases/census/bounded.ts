import { BSON } from 'mongodb'
import type { CensusTaken } from './census.js'

/** A census has to be read each second by whoever looks: no more than that, whatever the documents hold. */
export const MOST_BYTES = 64 * 1_024
/** The room for what its taker adds. */
const OF_TAKER = 1_024

/** A census that fits, if need be with fewer groups, and at last with fewer phases. */
export function bounded(census: CensusTaken): CensusTaken {
  let fitting = census
  while (BSON.calculateObjectSize(fitting) > MOST_BYTES - OF_TAKER) {
    const shorter = shortened(fitting)
    if (!shorter) break
    fitting = shorter
  }
  return fitting
}

const LISTS = ['errors', 'parks', 'waits', 'overdue', 'broken', 'loops'] as const

/** Leaves out half of the longest list of groups; if there are none, the phases that have no documents, then the last ones. */
function shortened(census: CensusTaken): CensusTaken | undefined {
  const [list] = [...LISTS].sort((one, other) => census[other].length - census[one].length)
  const { length } = census[list!]
  if (length > 0) {
    const kept = Math.floor(length / 2)
    const left = length - kept
    return {
      ...{ ...census, [list!]: census[list!].slice(0, kept) },
      ...(list === 'errors' && { moreErrors: census.moreErrors + left }),
      ...(list === 'parks' && { moreParks: census.moreParks + left }),
    }
  }
  const { phases } = census
  const used = phases.filter(({ documents }) => documents.n > 0)
  if (used.length < phases.length) return { ...census, phases: used }
  return phases.length > 1 ? { ...census, phases: phases.slice(0, -Math.ceil(phases.length / 10)) } : undefined
}
