import type { Db } from 'mongodb'
import type { Terms } from '../../lock/index.js'
import type { LifecycleModel } from '../../phases/index.js'

export interface Checked {
  readonly db: Db
  readonly models: readonly LifecycleModel[]
  /** The collections of the models. */
  readonly collections: readonly string[]
  readonly termsOf: (model: LifecycleModel) => Terms
  readonly repair: boolean
}

/** A problem that a person should know of, and the advice. */
export interface Finding {
  /** The subject: a collection, a lifecycle, an index. */
  readonly about: string
  readonly problem: string
  readonly advice: string
  /** `possible`: `--repair` does it without harm; `done`: it did. */
  readonly repair: 'none' | 'possible' | 'done'
}

export interface CheckResult {
  readonly check: string
  /** A summary in a few words, even if nothing was found: "2 indexes on each of 3 collections". */
  readonly said: string
  readonly findings: readonly Finding[]
}

/** A finding that only a person can repair. */
export const finding = (about: string, problem: string, advice: string): Finding => ({
  about,
  problem,
  advice,
  repair: 'none',
})

/** A finding that `--repair` can repair. `mend` is called only then; it returns false if another process is already at work. */
export async function mendable(
  found: Omit<Finding, 'repair'>,
  repair: boolean,
  mend: () => Promise<unknown>,
): Promise<Finding> {
  if (!repair) return { ...found, repair: 'possible' }
  const isDone = (await mend()) !== false
  return isDone
    ? { ...found, repair: 'done' }
    : { ...found, problem: `${found.problem}; another process is repairing it now`, repair: 'possible' }
}
