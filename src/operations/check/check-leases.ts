import type { Db, Document } from 'mongodb'
import { futureLeases, onClaimIndex, redateLeases, type Terms } from '../../lock/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import { formatMs } from '../../time/index.js'
import { COUNT_LIMIT } from '../count.js'
import { documents, listOf } from './check-documents.js'
import { hasIndexForClaims } from './check-indexes.js'
import { type CheckResult, type Finding, mendable } from './finding.js'

/** Finds leases that began later than now: the server's clock stepped back since, so they last longer by the whole step. */
export async function checkLeases(
  db: Db,
  models: readonly LifecycleModel[],
  termsOf: (model: LifecycleModel) => Terms,
  repair: boolean,
): Promise<CheckResult> {
  const findings: Finding[] = []
  for (const model of models) {
    const collection = db.collection(model.collection)
    const terms = termsOf(model)
    const phases = [...model.phases.keys()]
    const isIndexed = await hasIndexForClaims(collection)
    const projection = { aheadMs: { $subtract: ['$lockedAt', '$$NOW'] } }
    const find = (hint?: Document) =>
      collection.find(futureLeases(terms, phases), { projection, limit: COUNT_LIMIT, ...(hint && { hint }) }).toArray()
    const found = await (isIndexed ? onClaimIndex(collection, find) : find())
    if (found.length === 0) continue
    const ids = found.map((document) => document['_id'] as unknown)
    const most = Math.max(...found.map(({ aheadMs }) => Number(aheadMs)))
    const about = {
      about: model.collection,
      problem: `${documents(found.length)} held by leases of up to ${formatMs(most)} from now (${listOf(ids, ids.length)}): the server's clock stepped back`,
      advice: `let them begin anew, which takes nothing from a holder that lives: phaselock check --repair; what a dead one held is due ${formatMs(terms.lockTimeoutMs)} later`,
    }
    findings.push(await mendable(about, repair && isIndexed, () => redateLeases(collection, terms, phases)))
  }
  return { check: 'leases', said: 'none is from the future', findings }
}
