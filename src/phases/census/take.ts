import type { Collection, Db, Document } from 'mongodb'
import { isServerError, protocolCollection } from '../../database/index.js'
import {
  COUNT_LIMIT,
  countUpTo,
  givenUpOutboxes,
  inPhase,
  isRemovedPhase,
  LIFECYCLES_COLLECTION,
  liveReports,
  multikeyFields,
  type Paused,
  PHASELESS,
  phasesIn,
  type RunLifecycle,
  readPiece,
  removedPhase,
  type Terms,
} from '../../lock/index.js'
import type { Clock } from '../../time/index.js'
import type { LifecycleModel } from '../model/model.js'
import { bounded } from './bounded.js'
import type { Census, CensusTaken, Count, PhaseCensus } from './census.js'
import { countResting, countWorking, type PhaseCounts, type PhasePlace } from './count-phase.js'
import { ageOfDue, type DueAge } from './due-age.js'
import { Findings, lockedAtFound } from './findings.js'
import { goneCauses } from './store.js'
import { type CensusMemory, newMemory, type PieceName, READ_WHOLE, survey } from './survey.js'
import { countOf } from './tally.js'

/** A census that takes longer is given up: the database has other things to do. */
const MOST_CENSUS_MS = 60_000
/** The same with the commands that were under way, and the writes. */
export const CENSUS_WITHIN_MS = MOST_CENSUS_MS + 20_000
/** The most phases that the lifecycle doesn't have that are counted one by one. */
const MOST_UNKNOWN = 50
const LONGEST_PHASE = 200
const SOME = 3

export type Unclaimed = Census['overdue'][number]['why']

export interface CensusRequest {
  readonly db: Db
  readonly model: LifecycleModel
  readonly terms: Terms
  readonly paused: Paused
  /** The server's time. */
  readonly now: Date
  /** The size of a forward step of that clock that isn't confirmed yet: nothing counts as due by it. Default: none. */
  readonly heldBackMs?: number | undefined
  readonly clock: Pick<Clock, 'monotonicMs'>
  /** The reason why a phase's documents that are due for over a minute aren't claimed, where replicas handle it. */
  readonly why: (phase: string) => Unclaimed
  /** What is known from the last one that this process took. Default: nothing. */
  readonly memory?: CensusMemory | undefined
}

const MAX_TIME_EXPIRED = 50
/** The time limit of the list of phases. */
const MOST_LISTING_MS = 5_000

/** How long the claim index counts as free of arrays. */
const PLAIN_FOR_MS = 3_600_000

/** The error of a census that takes too long. */
export class CensusTooSlow extends Error {
  override readonly name = 'CensusTooSlow'
  constructor(lifecycle: string) {
    super(
      `the census of ${lifecycle} took longer than ${MOST_CENSUS_MS / 1_000} s, and was given up: the database is slow`,
    )
  }
}

/**
 * Counts the documents of a lifecycle by phase and condition, and finds out what is the matter with them. It sends one command after the
 * other, so that its time is about the server's, and a busy server isn't asked for more at once.
 * @throws CensusTooSlow, and the database's own errors
 */
export async function takeCensus(
  request: CensusRequest,
): Promise<{ readonly taken: CensusTaken; readonly othersMs: number }> {
  const { db, model, paused, now: at, heldBackMs = 0, clock, memory = newMemory() } = request
  // It counts for all replicas: a document that this one can't work on is due as well.
  const terms: Terms = { ...request.terms, only: undefined }
  const now = new Date(at.getTime() - heldBackMs)
  const startedMs = clock.monotonicMs()
  const collection = protocolCollection<Document>(db, model.collection)
  const findings = new Findings(model, terms, now)
  const requireTime = () => {
    if (clock.monotonicMs() - startedMs > MOST_CENSUS_MS) throw new CensusTooSlow(model.name)
  }
  const isPlain = await isPlainIn(collection, memory, startedMs)
  const { before, documents, count, hasOthers, ...found } = await survey({ db, model, terms, now, isPlain, memory })
  const neverDue = neverDueIn(found.neverDue, findings)
  const placeOf = (phase: string): PhasePlace => ({
    ...{ collection, terms, now, where: isPlain ? { phase } : inPhase(phase) },
  })
  const reports = reportsOf(db, model.name)
  const phases: PhaseCensus[] = []
  const overdue: Census['overdue'][number][] = []
  for (const { name, kind, limits } of model.phases.values()) {
    requireTime()
    const isPaused = paused.has(name)
    const known = (piece: PieceName) => documents(name, piece)
    const counts =
      kind === 'working'
        ? await countWorking({ ...placeOf(name), known }, findings)
        : await countResting({ ...placeOf(name), known, total: count(name) }, findings)
    const due = less(counts.due, neverDue.get(name) ?? 0)
    const age = due.n > 0 ? await ageOfDue(collection, terms, name, placeOf(name).where, now) : undefined
    const held = counts.isHeldCounted ? counts : await withReported(counts, name, reports)
    phases.push({ ...rowOf(name, kind, held, age, isPaused), due })
    if (!age?.oldest || age.overdue === 0) continue
    const why = isPaused ? 'paused' : (await isHandled(name, reports)) ? request.why(name) : 'unhandled'
    const [limit] = why === 'limit' && limits?.length === 1 ? limits : []
    overdue.push({
      ...{ phase: name, documents: { ...countOf(age.overdue, COUNT_LIMIT), ...(age.isPartly && { more: true }) }, why },
      ...{ ...(limit && { limit: limit.limit }), oldest: age.oldest, ids: age.ids },
    })
  }
  requireTime()
  if (hasOthers || !isPlain)
    phases.push(
      ...(await others(request, {
        collection,
        placeOf,
        isPlain,
        findings,
        requireTime,
        inTime: inTime(memory, startedMs),
      })),
    )
  const ends = [...model.phases.keys(), removedPhase(model.name)]
  const givenUp = await givenUpOutboxes(collection, { ...terms, callbacks: model.settings.callbacks }, ends, SOME)
  const lists = findings.lists((cause) => before.firstSeen.get(cause))
  const gone = goneCauses(before, { ...lists, at })
  const taken = bounded({
    ...{ gone, _id: model.name, at, tookMs: Math.ceil(clock.monotonicMs() - startedMs), phases, ...lists, overdue },
    callbacks: { givenUp: countOf(givenUp.n, COUNT_LIMIT), ids: givenUp.ids },
  })
  return { taken, othersMs: before.othersMs }
}

const less = (count: Count, n: number): Count => (n > 0 && !count.more ? { n: Math.max(0, count.n - n) } : count)

/** True if the claim index holds no array of phases. It is asked once an hour: arrays are rare, and an index that held one stays so. */
async function isPlainIn(collection: Collection, memory: CensusMemory, nowMs: number): Promise<boolean> {
  const isKnown = memory.checkedAtMs !== undefined && nowMs - memory.checkedAtMs < PLAIN_FOR_MS
  if (memory.isPlain !== undefined && isKnown) return memory.isPlain
  const fields = await multikeyFields(collection).catch(() => undefined)
  // That isn't known, and isn't remembered.
  if (!fields) return false
  memory.isPlain = !fields.includes('phase')
  memory.checkedAtMs = nowMs
  return memory.isPlain
}

type InTime = <T>(what: string, read: () => Promise<T>) => Promise<T | undefined>

/**
 * Reads what may take too long where arrays were once stored as phases; undefined if it does. Then it isn't tried again for an hour: each time costs the
 * server as much.
 */
const inTime =
  ({ tooSlow }: CensusMemory, nowMs: number): InTime =>
  async (what, read) => {
    if (nowMs - (tooSlow.get(what) ?? Number.NEGATIVE_INFINITY) < PLAIN_FOR_MS) return undefined
    try {
      return await read()
    } catch (error) {
      if (!isServerError(error, MAX_TIME_EXPIRED)) throw error
      tooSlow.set(what, nowMs)
      return undefined
    }
  }

/** Documents whose `lockedAt` sorts after all dates, by phase: the index counts them among the due ones. */
function neverDueIn(found: readonly Document[], findings: Findings): ReadonlyMap<string, number> {
  const stratum = { n: found.length, more: found.length === READ_WHOLE, read: found.length }
  for (const document of found) findings.addBroken('lockedAt', lockedAtFound(document), [document], stratum)
  const phases = Map.groupBy(found, ({ phase }) => String(phase))
  return new Map([...phases].map(([phase, documents]) => [phase, documents.length]))
}

type Reports = () => Promise<readonly RunLifecycle[]>

/** What the live replicas report of a lifecycle, read once if it is needed. */
function reportsOf(db: Db, lifecycle: string): Reports {
  let read: Promise<readonly RunLifecycle[]> | undefined
  return () => {
    read ??= liveReports(db).then((all) => all.filter(({ name }) => name === lifecycle))
    return read
  }
}

/** True if a live replica has a handler for a phase; without any reports nothing is known. */
async function isHandled(phase: string, reports: Reports): Promise<boolean> {
  const all = await reports()
  return all.length === 0 || all.some(({ phases }) => phases.includes(phase))
}

/** The number held, by the replicas' own reports: there are too many documents to look at each. */
async function withReported(counts: PhaseCounts, phase: string, reports: Reports): Promise<PhaseCounts> {
  const all = await reports()
  const known = all.flatMap(({ heldIn }) => (heldIn ? [heldIn.find((one) => one.phase === phase)?.n ?? 0] : []))
  if (known.length === 0 || known.length < all.length) return counts
  return { ...counts, held: known.reduce((sum, n) => sum + n, 0) }
}

const rowOf = (
  phase: string,
  kind: PhaseCensus['kind'],
  { isHeldCounted: _, later: __, ...counts }: PhaseCounts,
  age?: DueAge,
  paused = false,
): PhaseCensus => ({
  ...{ phase: phase.slice(0, LONGEST_PHASE), kind, paused, ...counts },
  ...{ oldestDueAt: paused ? null : (age?.oldest ?? null), undated: paused ? 0 : (age?.undated ?? 0) },
})

interface OtherPlaces {
  readonly collection: Collection
  readonly placeOf: (phase: string) => PhasePlace
  /** True if no phase is an array. */
  readonly isPlain: boolean
  readonly findings: Findings
  readonly requireTime: () => void
  readonly inTime: InTime
}

/** The documents that are in none of the lifecycle's phases: removed ones, and those that no replica claims. */
async function others(
  { db, model }: CensusRequest,
  { collection, placeOf, isPlain, findings, requireTime, inTime }: OtherPlaces,
): Promise<PhaseCensus[]> {
  const listed = await inTime('phases', () => phasesIn(collection, { maxTimeMS: MOST_LISTING_MS }))
  const found = listed ?? []
  const rows: PhaseCensus[] = listed ? [] : [rowOf('(other phases)', 'unknown', UNCOUNTED)]
  const stray = await strayPhases(db, model, found)
  for (const phase of stray.slice(0, MOST_UNKNOWN)) {
    requireTime()
    rows.push(rowOf(phase, 'unknown', await countResting(placeOf(phase), findings)))
  }
  const left = stray.length - MOST_UNKNOWN
  if (left > 0) rows.push(rowOf(`(${left} further phases)`, 'unknown', only({ n: left, more: true })))
  const removed = removedPhase(model.name)
  if (found.includes(removed)) {
    const { documents } = await countResting(placeOf(removed), findings)
    rows.push(rowOf('(removed)', 'removed', only(documents)))
  }
  const mayBe = {
    '(missing)': !listed || found.includes(null),
    '(not a string)': !listed || found.some((phase) => phase !== null && typeof phase !== 'string'),
    '(an array)': !isPlain,
  }
  for (const [phase, where] of Object.entries(PHASELESS)) {
    if (!mayBe[phase as keyof typeof mayBe]) continue
    const n = await inTime(phase, () => countUpTo(collection, where))
    const documents = n === undefined ? UNCOUNTED.documents : countOf(n, COUNT_LIMIT)
    rows.push(rowOf(phase, 'unknown', only(documents)))
    if (documents.n === 0) continue
    const read = () => readPiece(collection, where, { limit: SOME, projection: { _id: 1 } })
    const some = (await inTime(phase, read)) ?? []
    const { more = false } = documents
    findings.addBroken('phase', phase.slice(1, -1), some, { n: documents.n, more, read: some.length })
  }
  return rows.filter(({ documents }) => documents.n > 0 || documents.more)
}

const ZERO: Count = { n: 0 }
const only = (documents: Count): PhaseCounts => ({
  ...{ documents, due: ZERO, held: 0, sleeping: ZERO, asking: ZERO, parked: ZERO, failing: ZERO, waiting: ZERO },
  ...{ later: ZERO, isHeldCounted: true },
})

/** There may be some: they could not be counted in time. */
const UNCOUNTED = only({ n: 0, more: true })

/** The phases of documents that are strings and that nothing is known of. */
export const unknownAmong = (phases: readonly unknown[], known: { has(phase: string): boolean }): string[] =>
  phases.filter((phase): phase is string => typeof phase === 'string' && !known.has(phase))

/** The phases in a lifecycle's collection that belong neither to it, nor to another lifecycle there, nor to removed documents. */
export async function strayPhases(db: Db, model: LifecycleModel, found?: readonly unknown[]): Promise<string[]> {
  const unknown = unknownAmong(found ?? (await phasesIn(db.collection(model.collection))), model.phases)
  const stray = unknown.filter((phase) => !isRemovedPhase(phase))
  if (stray.length === 0) return []
  const beside = { collection: model.collection, _id: { $ne: model.name as never } }
  const known = await db.collection(LIFECYCLES_COLLECTION).distinct('phases', beside)
  return stray.filter((phase) => !known.includes(phase))
}
