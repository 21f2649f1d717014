import type { LookRequest, Terms } from '../../../lock/index.js'
import type { LifecycleModel } from '../../definition/lifecycle.js'

/** What each tick asks of a lifecycle: working and final phases, resting ones with a deadline, rules and renames. */
export const lookRequestOf = (model: LifecycleModel, terms: Terms): LookRequest => ({
  lifecycle: model.name,
  collection: model.collection,
  terms,
  phases: [...model.phases.values()]
    .filter((phase) => phase.kind !== 'resting' || phase.deadline)
    .map((phase) => phase.name),
  rules: model.rules,
  renames: model.renames,
})
