import type { Collection, Document, Filter } from 'mongodb'
import { COUNT_LIMIT, countUpTo, laterStrata, piecesOf, readPiece, type Terms } from '../../lock/index.js'
import type { Count, PhaseCensus } from './census.js'
import { type Findings, foundFields, PhaseFindings } from './findings.js'
import { type PieceName, READ_WHOLE } from './survey.js'
import { countOf, type Stratum, sumOf } from './tally.js'

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
  /** The documents of a piece that were read already. Default: none. */
  readonly known?: ((piece: PieceName) => readonly Document[] | undefined) | undefined
  /** The number of documents, if it is known already. */
  readonly total?: number | undefined
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
  const documents = countOf(place.total ?? (await countUpTo(place.collection, place.where)), COUNT_LIMIT)
  const parked = documents.n === 0 ? NONE : await countParked(place, findings)
  const none = { due: NONE, held: 0, sleeping: NONE, asking: NONE, failing: NONE, waiting: NONE, later: NONE }
  return { documents, ...none, parked, isHeldCounted: true }
}

/** Counts the documents of a phase with work by condition, and looks through those that sleep, were woken or are parked. */
export async function countWorking(place: PhasePlace, findings: Findings): Promise<PhaseCounts> {
  const { terms, now } = place
  const bound = new Date(now.getTime() - terms.lockTimeoutMs)
  const pieces = piecesOf(bound)
  const phase = new PhaseFindings()
  const due = [
    await lookAt(place, findings, phase, { name: 'free', piece: pieces.free }),
    await lookAt(place, findings, phase, { name: 'woken', piece: pieces.woken }),
  ]
  const later = await lookAt(place, findings, phase, { name: 'later', piece: pieces.later, strata: laterStrata(bound) })
  const parked = await countParked(place, findings)
  return {
    documents: limited(sumOf([...due, later, parked])),
    due: limited(sumOf(due)),
    held: phase.held.count.n,
    isHeldCounted: !phase.held.count.about,
    later,
    sleeping: phase.sleeping.count,
    asking: phase.asking.count,
    failing: phase.failing.count,
    waiting: phase.waiting.count,
    parked,
  }
}

/** Exact up to the limit, as each count is. */
const limited = ({ n, more }: Count): Count => (more || n > COUNT_LIMIT ? { n: COUNT_LIMIT, more: true } : { n })

interface Piece {
  readonly name: PieceName
  readonly piece: Filter<Document>
  /** The parts that it is sampled by if it is large. Default: it is one. */
  readonly strata?: readonly Filter<Document>[]
}

/** Looks through a piece, whole or by samples of its parts. Returns its number. */
async function lookAt(
  { collection, terms, where, known }: PhasePlace,
  findings: Findings,
  phase: PhaseFindings,
  { name, piece, strata = [piece] }: Piece,
): Promise<Count> {
  const isLater = name === 'later'
  const read = known?.(name)
  const add = (n: number, documents: readonly Document[]) =>
    findings.add(documents, stratumOf(n, documents), phase, isLater)
  if (read) add(read.length, read)
  if (read) return { n: read.length }
  const total = await countUpTo(collection, { ...where, ...piece })
  for (const part of total <= READ_WHOLE ? [piece] : strata) {
    const filter = { ...where, ...part }
    const n = part === piece ? total : await countUpTo(collection, filter)
    add(n, n === 0 ? [] : await readPiece(collection, filter, reading(terms, n)))
  }
  return countOf(total, COUNT_LIMIT)
}

/** Of many parked documents it looks at the newest and at the oldest ones: the index has no other order for them. */
async function countParked(place: PhasePlace, findings: Findings): Promise<Count> {
  const { collection, terms, where, now } = place
  const read = place.known?.('parked')
  if (read) findings.addParked(read, stratumOf(read.length, read))
  if (read) return { n: read.length }
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
