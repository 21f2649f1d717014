import type { Db } from 'mongodb'
import type { LifecycleModel } from '../../phases/index.js'
import { termsInForce } from '../system.js'
import { checkClocks } from './check-clocks.js'
import { checkPhases, checkShapes, checkStuck } from './check-documents.js'
import { checkIndexes, checkMultikey, checkQueryPlans } from './check-indexes.js'
import { checkLeases } from './check-leases.js'
import { checkLifecycles } from './check-lifecycles.js'
import type { CheckResult } from './finding.js'

export interface CheckOptions {
  readonly db: Db
  readonly models: readonly LifecycleModel[]
  /** Also mends what is safe while replicas run: missing indexes, a multikey claim index, documents that never come due, leases from the future. */
  readonly repair?: boolean | undefined
}

/**
 * Checks a database for what makes Phaselock slow, or leaves documents unprocessed. Without `repair` nothing is changed. It reads whole
 * collections, one query after another.
 * @throws what the driver throws when the database can't be reached
 */
export async function checkDatabase({ db, models, repair = false }: CheckOptions): Promise<CheckResult[]> {
  const terms = await termsInForce(db, models)
  const collections = [...new Set(models.map((model) => model.collection))]
  return [
    await checkLifecycles(db, models),
    await checkIndexes(db, collections, repair),
    // Arrays are removed before their index is rebuilt, or it would be multikey again.
    await checkStuck(db, models, terms, repair),
    await checkLeases(db, models, terms, repair),
    await checkMultikey(db, collections, repair),
    await checkQueryPlans(db, models, terms),
    await checkShapes(db, models),
    await checkPhases(db, models),
    await checkClocks(db),
  ]
}
