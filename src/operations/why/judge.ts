import { dueSince } from '../inspect/explain.js'
import type { Found } from '../inspect/find.js'
import { type InForce, inForceIn, modelOf, type System } from '../system/system.js'
import { type Awaited, awaitedBy } from './awaited.js'
import {
  ableReplicas,
  clockTerm,
  indexTerm,
  isolationTerm,
  limitTerms,
  replicaTerm,
  turnTerm,
  writesTerm,
} from './claim-terms.js'
import { type Facts, factsOf, type Judged, type Known, known, type SharedFacts } from './facts.js'
import {
  handlerTerm,
  leaseTerm,
  parkTerm,
  pauseTerm,
  phaseTerm,
  removalTerm,
  ruleTerm,
  shapeTerm,
  sleepTerm,
} from './own-terms.js'
import type { Term, Verdict } from './term.js'

/** The levels of documents that wait for one another. */
const MOST_LEVELS = 3

/**
 * A document as it is stored.
 * @param known what it was judged by. Default: it is read
 */
export async function asStored(system: System, found: Found, known?: InForce): Promise<Judged> {
  const model = modelOf(system, found.lifecycle)
  const inForce = known ?? (await inForceIn(system.db, [model]))(model)
  return { system, model, found, inForce, stages: [{ $match: { _id: found.document['_id'] } }] }
}

/** Judges a document: as it is stored, or as an action would leave it. @param level of those that wait for one another */
export async function judge(
  judged: Judged,
  level = 0,
  shared?: SharedFacts,
): Promise<{ readonly verdict: Verdict; readonly facts: Facts }> {
  const { system, found } = judged
  const judgeOther = async (other: Found) => (await judge(await asStored(system, other), level + 1)).verdict
  const [facts, read] = await Promise.all([
    factsOf(judged, shared),
    level < MOST_LEVELS ? known(() => awaitedBy(system, found, judgeOther)) : undefined,
  ])
  const awaited = read && awaitedIn(read)
  const { entry, replicas } = facts
  const terms = [
    shapeTerm(judged),
    removalTerm(judged),
    parkTerm(judged),
    phaseTerm(judged),
    leaseTerm(judged, replicas),
    handlerTerm(judged, entry),
    pauseTerm(judged),
    sleepTerm(judged, awaited?.evidence),
    ruleTerm(judged, entry),
    clockTerm(judged, facts),
    ...limitTerms(facts),
    replicaTerm(judged, facts),
    turnTerm(judged, facts),
    writesTerm(judged, facts),
    isolationTerm(judged, facts),
    indexTerm(facts),
  ]
  const first = terms.find((term) => term.holds === false)
  const { lifecycle, document, condition, now } = found
  const verdict = {
    ...{ lifecycle, document: document['_id'], condition: condition.kind, terms },
    sentence: sentenceOf(judged, facts, terms, awaited),
    ...(first && { blockedBy: first.name }),
    now,
  }
  return { verdict, facts }
}

/** What can't be read of another document is unknown, and all else is judged. */
const awaitedIn = (read: Known<Awaited | undefined>): Awaited | undefined =>
  'value' in read
    ? read.value
    : { evidence: { unknown: read.unknown }, text: `what that is can't be read: ${read.unknown.split('\n')[0]}` }

function sentenceOf(judged: Judged, facts: Facts, terms: readonly Term[], awaited: Awaited | undefined): string {
  const { condition, explanation, document, now } = judged.found
  const first = terms.find((term) => term.holds === false)
  const isMoved = first?.name === 'rule' && first.evidence['kind'] === 'rule'
  if (condition.kind !== 'due' || first?.name === 'pause' || isMoved) {
    const life = first?.name === 'lease' ? holderText(first) : ''
    return `${explanation}${life}${awaited ? ` It waits for another: ${awaited.text}.` : ''}`
  }
  const due = dueSince(condition, now)
  if (first) return `${due}, but ${first.text}.`
  const unknown = terms.filter((term) => term.holds === 'unknown').map(({ name, text }) => `${name} (${text})`)
  if (unknown.length > 0)
    return `${due}, and nothing that is known stands in its way; not known: ${unknown.join('; ')}.`
  const names = (ableReplicas(judged, facts) ?? []).map(({ name }) => name)
  return `${due}: ${names.join(' or ')} runs ${String(document['phase'])} next.`
}

function holderText({ evidence }: Term): string {
  const { replica, alive } = evidence
  if (alive === 'unknown') return ' Its holder is not among the replicas (phaselock replicas).'
  return alive ? '' : ` ${replica} is dead: others take the document up when the lease ends.`
}
