import type { Collection, Document, Filter } from 'mongodb'
import { COUNT_LIMIT, countUpTo, laterStrata, piecesOf, readPiece, type Terms } from '../../lock/index.js'
import type { Count, PhaseCensus } from './census.js'
import { type Findings, foundFields, PhaseFindings } from './findings.js'
import { countOf, type Stratum, sumOf } from './tally.js'

/** Sets of at most as many documents are read whole, so that what is said of them is exact. */
export const READ_WHOLE = 1_000
/** The sample of a part of a larger set. Eight parts of a phase's sleeping documents at most: a thousand documents and a half. */
const SAMPLE = 200

/** Where the documents of a phase are, for counts and reads. */
export interface PhasePlace {
  readonly collection: Collection
  readonly terms: Terms
  /** The filter of the phase; the index alone answers it unless arrays may be there. */
  readonly where: Filter<Document>
  /** The server's time. */
  readonly now: Date
}

/** The counts of a phase, without what needs other collections. */
export type PhaseCounts = Pick<
  PhaseCensus,
  'documents' | 'due' | 'held' | 'sleeping' | 'asking' | 'parked' | 'failing' | 'waiting'
> & {
  /** True if `held` was counted in the documents themselves. */
  readonly isHeldCounted: boolean
  /** The documents that are held or asleep. */
  readonly later: Count
}

const NONE: Count = { n: 0 }

/** Counts the documents of a phase without work: all of them, and the parked ones. */
export async function countResting(place: PhasePlace, findings: Findings): Promise<PhaseCounts> {
  const documents = countOf(await countUpTo(place.collection, place.where), COUNT_LIMIT)
  const parked = documents.n === 0 ? NONE : await countParked(place, findings)
  const none = { due: NONE, held: 0, sleeping: NONE, asking: NONE, failing: NONE, waiting: NONE, later: NONE }
  return { documents, ...none, parked, isHeldCounted: false }
}

/** Counts the documents of a phase with work by condition, and looks through those that sleep, were woken or are parked. */
export async function countWorking(place: PhasePlace, findings: Findings): Promise<PhaseCounts> {
  const { collection, terms, where, now } = place
  const bound = new Date(now.getTime() - terms.lockTimeoutMs)
  const pieces = piecesOf(bound)
  const count = (piece: Filter<Document>) => countUpTo(collection, { ...where, ...piece })
  const [free, woken, later] = [await count(pieces.free), await count(pieces.woken), await count(pieces.later)]
  const phase = new PhaseFindings()
  await look(place, findings, phase, { piece: pieces.free, n: free, isLater: false })
  await look(place, findings, phase, { piece: pieces.woken, n: woken, isLater: false })
  if (later <= READ_WHOLE) await look(place, findings, phase, { piece: pieces.later, n: later, isLater: true })
  else
    for (const piece of laterStrata(bound))
      await look(place, findings, phase, { piece, n: await count(piece), isLater: true })
  const parked = await countParked(place, findings)
  const counts = [free, woken, later].map((n) => countOf(n, COUNT_LIMIT))
  const due = limited(sumOf(counts.slice(0, 2)))
  return {
    documents: limited(sumOf([...counts, parked])),
    due,
    held: phase.held.count.n,
    isHeldCounted: !phase.held.count.about,
    later: counts[2]!,
    sleeping: phase.sleeping.count,
    asking: phase.asking.count,
    failing: phase.failing.count,
    waiting: phase.waiting.count,
    parked,
  }
}

/** Exact up to the limit, as each count is. */
const limited = ({ n, more }: Count): Count => (more || n > COUNT_LIMIT ? { n: COUNT_LIMIT, more: true } : { n })

async function look(
  { collection, terms, where }: PhasePlace,
  findings: Findings,
  phase: PhaseFindings,
  { piece, n, isLater }: { piece: Filter<Document>; n: number; isLater: boolean },
): Promise<void> {
  const documents = n === 0 ? [] : await readPiece(collection, { ...where, ...piece }, reading(terms, n))
  findings.add(documents, stratumOf(n, documents), phase, isLater)
}

/** Of many parked documents it looks at the newest and at the oldest ones: the index has no other order for them. */
async function countParked({ collection, terms, where, now }: PhasePlace, findings: Findings): Promise<Count> {
  const filter = { ...where, ...piecesOf(now).parked }
  const n = await countUpTo(collection, filter)
  if (n === 0) return NONE
  const how = reading(terms, n)
  const documents = await readPiece(collection, filter, how)
  if (n > READ_WHOLE) documents.push(...(await readPiece(collection, filter, { ...how, backwards: true })))
  findings.addParked(documents, stratumOf(n, documents))
  return countOf(n, COUNT_LIMIT)
}

const reading = ({ progress }: Terms, n: number) => ({
  limit: n <= READ_WHOLE ? READ_WHOLE : SAMPLE,
  projection: foundFields(progress),
})

/** Documents may have come or gone between the count and the read: of a set that was read whole, what was read counts. */
const stratumOf = (n: number, { length: read }: readonly Document[]): Stratum =>
  n <= READ_WHOLE ? { n: read, more: false, read } : { n: Math.min(n, COUNT_LIMIT), more: n > COUNT_LIMIT, read }
