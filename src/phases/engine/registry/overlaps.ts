import { OverlappingLifecycles } from '../../errors/errors.js'
import type { LifecycleModel } from '../../model/model.js'

/** The part of a lifecycle that decides its documents: those of its collection that are in its phases. */
export interface Territory {
  readonly name: string
  readonly collection: string
  readonly phases: readonly string[]
}

export const territoryOf = ({ name, collection, phases, renames }: LifecycleModel): Territory => ({
  name,
  collection,
  phases: [...phases.keys(), ...renames.map((rename) => rename.from)],
})

/**
 * Refuses two lifecycles of one process that would claim the same documents.
 * @throws OverlappingLifecycles also for two of one name
 */
export function requireDisjoint(models: readonly LifecycleModel[]): void {
  const problems = models.flatMap((model, i) =>
    models.slice(i + 1).flatMap((other) => {
      if (other.name === model.name)
        return [`two lifecycles are called '${model.name}'; give this replica only one of them`]
      const common = commonPhases(territoryOf(model), territoryOf(other))
      const both = `'${model.name}' and '${other.name}' both work on ${model.collection} and both have ${common}`
      return common ? [`${both}; rename them in one, or give it a collection of its own`] : []
    }),
  )
  if (problems.length > 0) throw new OverlappingLifecycles(problems)
}

/** @throws OverlappingLifecycles when another process has registered a lifecycle for the same documents */
export function requireDisjointFrom(models: readonly LifecycleModel[], registered: readonly Territory[]): void {
  const problems = models.flatMap((model) =>
    registered.flatMap((other) => {
      const common = commonPhases(territoryOf(model), other)
      const forget = `db.getCollection('phaselock.lifecycles').deleteOne({ _id: '${other.name}' })`
      const both = `'${model.name}' would work on ${model.collection}, where lifecycle '${other.name}' is registered and has ${common} too`
      const advice = `rename them or use another collection. If no replica runs '${other.name}' any more: ${forget}`
      return common ? [`${both}; ${advice}`] : []
    }),
  )
  if (problems.length > 0) throw new OverlappingLifecycles(problems)
}

/** The phases that two have in common, for a message; '' for none. */
function commonPhases(one: Territory, other: Territory): string {
  const common = one.collection === other.collection ? one.phases.filter((phase) => other.phases.includes(phase)) : []
  const names = common.map((phase) => `'${phase}'`).join(', ')
  return names && `the phase${common.length > 1 ? 's' : ''} ${names}`
}
