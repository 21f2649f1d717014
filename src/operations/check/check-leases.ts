import type { Db } from 'mongodb'
import { CLAIM_INDEX, futureLeases, redateLeases, type Terms } from '../../lock/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import { formatMs } from '../../time/index.js'
import { COUNT_LIMIT } from '../count.js'
import { documents, listOf } from './check-documents.js'
import { hasClaimIndex } from './check-indexes.js'
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
    const isIndexed = await hasClaimIndex(collection)
    const found = await collection
      .find(futureLeases(terms, phases), {
        projection: { aheadMs: { $subtract: ['$lockedAt', '$$NOW'] } },
        limit: COUNT_LIMIT,
        ...(isIndexed ? { hint: CLAIM_INDEX } : {}),
      })
      .toArray()
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
