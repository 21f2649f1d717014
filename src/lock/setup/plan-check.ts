import type { Collection, Db, Document } from 'mongodb'
import { isServerError, protocolCollection } from '../../database/index.js'
import { CANDIDATE_RANGES, candidateCursor } from '../candidates/candidates.js'
import { orderIndexes } from '../candidates/order.js'
import { boundedScanProblems, readByPlan } from '../documents/plan-scans.js'
import type { ServerClock } from '../lease/server-clock.js'
import type { LookRequest, Looks } from '../look/look.js'
import { outboxIndex } from '../outbox/outbox.js'
import { CLAIM_INDEX, STATE_INDEX } from '../terms/terms.js'
import { unusableLockIndexes } from './indexes.js'

/** Something that makes claims or looks slower the more documents there are. */
export interface PlanFinding {
  /** The command: "claim of Working in Thing (woken)". */
  readonly what: string
  /** The scan and its cause. */
  readonly problem: string
  /** The remedy. */
  readonly advice: string
}

/** The start was refused because a claim or a look is not a bounded scan of its index; lists every finding. */
export class BadQueryPlan extends Error {
  override readonly name = 'BadQueryPlan'
  constructor(
    /** Each query that isn't bounded by its index, with its scan. */
    readonly findings: readonly PlanFinding[],
  ) {
    super(
      `expected claims and looks to be bounded scans of their indexes, got:\n${findings.map((one) => `  - ${describeFinding(one)}`).join('\n')}`,
    )
  }
}

export const describeFinding = ({ what, problem, advice }: PlanFinding): string => `${what}: ${problem}; ${advice}`

export interface PlanCheckOptions {
  readonly db: Db
  readonly looks: Looks
  readonly serverClock: ServerClock
  readonly requests: readonly LookRequest[]
}

/** The number that the biggest claim asks for. */
const LIMIT = 500
/** Keys and documents: a plan that reads at most this many more than the meant one has nothing to lose against it. */
const AS_GOOD_AS_NOTHING = 10
const MAX_TIME_MS = 10_000

/**
 * Explains the claims and looks, and reads which indexes there are. Empty: each is a bounded scan of the index
 * meant for it, so documents that are not due cost nothing. Nothing is changed, and only one look is executed. Works on
 * empty collections.
 * @throws what the driver throws when the database can't be reached
 */
export async function checkPlans(options: PlanCheckOptions): Promise<PlanFinding[]> {
  // The look brings the server's time, without which the bounds that keep a multikey index cheap would be left out.
  await options.looks.look(options.requests, { maxTimeMS: MAX_TIME_MS })
  const collections = [...new Set(options.requests.map((request) => request.collection))]
  const found = await Promise.all([
    ...collections.map((name) => {
      const own = options.requests.filter(({ collection }) => collection === name)
      const more = own.flatMap(({ order, outbox, terms }) => [
        ...orderIndexes(order ?? {}),
        ...(outbox ? [outboxIndex(terms.progress)] : []),
      ])
      return indexFindings(protocolCollection(options.db, name), more)
    }),
    ...options.requests.map((request) => requestFindings(options, request)),
  ])
  return found.flat()
}

async function indexFindings(collection: Collection, more: readonly Document[]): Promise<PlanFinding[]> {
  try {
    const unusable = await unusableLockIndexes(collection, more)
    return unusable.map(({ what, problem, command }) => ({ what, problem, advice: `run ${command}` }))
  } catch (error) {
    if (!isServerError(error)) throw error
    const what = `indexes of ${collection.collectionName}`
    const problem = `the server doesn't list them (${error.code}): ${error.message}`
    return [{ what, problem, advice: 'grant the user the listIndexes action on it' }]
  }
}

type Explained = { explain(verbosity: 'queryPlanner' | 'executionStats'): Promise<Document> }

/** A query whose plan is checked. */
interface Check {
  readonly what: string
  readonly query: Explained
  /** The same with a hint for its index, if it otherwise leaves the choice to the server. */
  readonly hinted?: Explained
  readonly index: Document
  readonly boundedFields: number
}

async function requestFindings(options: PlanCheckOptions, request: LookRequest): Promise<PlanFinding[]> {
  const { terms, phases } = request
  const collection = protocolCollection<Document>(options.db, request.collection)
  const dueBound = options.serverClock.dueBound(terms.lockTimeoutMs) ?? new Date(0)
  const claimsOf = (phase: string) =>
    CANDIDATE_RANGES.map((range): Check => {
      const query = candidateCursor(collection, terms, phase, range, { limit: LIMIT, dueBound })
      const what = `claim of ${phase} in ${request.collection} (${range})`
      return { what, query, index: CLAIM_INDEX, boundedFields: 2 }
    })
  const looks = options.looks.queries(request).map(({ kind, index, match }): Check => {
    const about = {
      due: `due documents of ${phases[index]}`,
      rule: `state ${request.rules[index]?.when}`,
      duty: `${request.dutyQueries?.[index]?.name}`,
      rename: `documents of the former phase ${request.renames?.[index]?.from}`,
      outbox: 'callbacks to be told',
    }[kind]
    const meant = { rule: STATE_INDEX, outbox: outboxIndex(terms.progress) }[kind as string] ?? CLAIM_INDEX
    const query = (how: { hint?: Document } = {}) =>
      collection.aggregate([{ $match: match }, { $limit: 1 }], { ...how, maxTimeMS: MAX_TIME_MS })
    return {
      what: `look for ${about} in ${request.collection}`,
      query: query(),
      hinted: query({ hint: meant }),
      index: meant,
      // A rename also takes sleeping and parked documents: all of its phase.
      boundedFields: kind === 'rename' || kind === 'duty' ? 1 : 2,
    }
  })
  // One after the other: a start must not open a connection for each of dozens of explains.
  const findings: PlanFinding[] = []
  for (const phase of phases) {
    const before = findings.length
    for (const claim of claimsOf(phase)) findings.push(...(await findingOf(claim)))
    // The hint settles a claim's plan, and claims of other phases differ from it in a value only: one phase answers for all.
    if (findings.length === before) break
  }
  for (const look of looks) findings.push(...(await findingOf(look)))
  return findings
}

/**
 * Finds the problems of a query's plan. The server chooses by the number that the plans have read when the first of them is through. If that is
 * the same (an empty collection, none in these phases, a few dozen that all have something to deliver), the choice says nothing. Then the plan
 * with a hint counts.
 * @returns the problems of its plan
 */
export async function problemsOf({ query, hinted, index, boundedFields }: Omit<Check, 'what'>): Promise<string[]> {
  const problems = boundedScanProblems(await query.explain('queryPlanner'), index, boundedFields)
  if (problems.length === 0 || !hinted) return problems
  try {
    const read = readByPlan(await query.explain('executionStats'))
    const meant = await hinted.explain('executionStats')
    const isAsGood = read !== undefined && read <= (readByPlan(meant) ?? 0) + AS_GOOD_AS_NOTHING
    return isAsGood && boundedScanProblems(meant, index, boundedFields).length === 0 ? [] : problems
  } catch (error) {
    // Its index isn't there or hidden, or the query took too long.
    if (isServerError(error)) return problems
    throw error
  }
}

async function findingOf({ what, ...check }: Check): Promise<PlanFinding[]> {
  const name = JSON.stringify(check.index)
  try {
    const problems = await problemsOf(check)
    const advice = `expected a bounded scan of ${name}: make sure that it exists and isn't hidden, and that no index filter or plan setting forbids it`
    return problems.length === 0 ? [] : [{ what, problem: problems.join(', '), advice }]
  } catch (error) {
    if (!isServerError(error)) throw error
    const advice = `expected the index ${name} to exist and the user to be allowed to explain queries`
    return [{ what, problem: `the server can't plan it (${error.code}): ${error.message}`, advice }]
  }
}
