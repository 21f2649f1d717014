import type { Db } from 'mongodb'
import type { LifecycleModel } from '../../phases/index.js'
import { termsInForce } from '../system/system.js'
import { checkClocks } from './check-clocks.js'
import { checkLeases, checkPhases, checkShapes, checkStuck } from './check-documents.js'
import { checkIndexes, checkMultikey, checkQueryPlans } from './check-indexes.js'
import { checkLifecycles } from './check-lifecycles.js'
import { checkLimits } from './check-limits.js'
import type { Checked, CheckResult } from './finding.js'

export interface CheckOptions {
  readonly db: Db
  readonly models: readonly LifecycleModel[]
  /**
   * If true, also repairs everything that is safe while replicas run: missing indexes, a multikey claim index, documents that never come
   * due, leases from the future, declared limits that are gone.
   */
  readonly repair?: boolean | undefined
}

/**
 * Checks a database for problems that make Phaselock slow, or leave documents unprocessed. Without `repair` nothing is changed. It reads
 * whole
 * collections, one query after another.
 * @throws the driver's errors when the database can't be reached
 */
export async function checkDatabase({ db, models, repair = false }: CheckOptions): Promise<CheckResult[]> {
  const collections = [...new Set(models.map((model) => model.collection))]
  const checked: Checked = { db, models, collections, termsOf: await termsInForce(db, models), repair }
  return [
    await checkLifecycles(checked),
    await checkIndexes(checked),
    // Arrays are removed before their index is rebuilt, or it would be multikey again.
    await checkStuck(checked),
    await checkLeases(checked),
    await checkLimits(checked),
    await checkMultikey(checked),
    await checkQueryPlans(checked),
    await checkShapes(checked),
    await checkPhases(checked),
    await checkClocks(db),
  ]
}
