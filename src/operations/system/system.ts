import type { Db } from 'mongodb'
import { type CancelRequest, isInForce, type Pause, readLockTimeouts, type Terms, termsOf } from '../../lock/index.js'
import { type DoorbellMode, didYouMean } from '../../options/index.js'
import { type AuditOptions, type LifecycleModel, workingPhases } from '../../phases/index.js'
import { UsageError } from './errors.js'

/** The system that operations work on: a database, and the lifecycles whose documents are in it. */
export interface System {
  readonly db: Db
  /** The lifecycles, in the order that an `_id` is looked for. */
  readonly models: readonly LifecycleModel[]
  /** `off`: replicas find changes with their next tick. Default: they are notified before an operation ends. */
  readonly doorbell?: DoorbellMode | undefined
  /** The collections of schedules. Default: `schedules` and `runs`. */
  readonly collections?: { readonly schedules: string; readonly runs: string } | undefined
  /** The author of the actions and the reason: the audit keeps an entry of each action. Default: none. */
  readonly audit?: AuditOptions | undefined
}

/** @throws UsageError for an unknown name */
export function modelOf({ models }: System, name: string): LifecycleModel {
  const found = models.find((model) => model.name === name)
  if (found) return found
  const known = models.map((model) => model.name)
  throw new UsageError(
    `expected a lifecycle (${known.join(', ')}), got '${name}'${didYouMean(name, known)}`,
    { reason: 'unknownLifecycle', lifecycle: name, known },
    'a replica registers its lifecycles when it starts',
  )
}

/** The name of the lifecycle of schedules' runs. */
export const runsOf = (collections: System['collections']): string => `${collections?.schedules ?? 'schedules'}.runs`

/** The terms that documents are judged by: the lockTimeout in force, or the lifecycle's own if no replica has registered it yet. */
export async function termsInForce(
  db: Db,
  models: readonly LifecycleModel[],
): Promise<(model: LifecycleModel) => Terms> {
  const judged = await inForceIn(db, models)
  return (model) => judged(model).terms
}

/** The terms that documents of a lifecycle are judged by, and the requests of people. */
export interface InForce {
  readonly terms: Terms
  readonly pauses: readonly Pause[]
  readonly cancels: readonly CancelRequest[]
}

/** The same, with the pauses in force and the cancels of the last minutes. */
export async function inForceIn(
  db: Db,
  models: readonly LifecycleModel[],
): Promise<(model: LifecycleModel) => InForce> {
  const names = models.map((model) => model.name)
  const all = await readLockTimeouts(db, names)
  return (model) => {
    const { lockTimeoutMs, progress, legacyWriters } = model.settings
    const known = all.get(model.name)
    const working = workingPhases(model)
    const terms = termsOf(known?.dueMs ?? lockTimeoutMs, { progress, legacyWriters, working })
    const pauses = known?.pauses.filter((pause) => isInForce(pause, known.now)) ?? []
    return { terms, pauses, cancels: known?.cancels ?? [] }
  }
}
