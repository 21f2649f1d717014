import { UsageError } from '../../operations/index.js'
import { didYouMean } from '../../options/index.js'
import type { LifecycleModel } from '../../phases/index.js'

/** The states that a lifecycle's rules name, in their order. */
function knownStates(model: LifecycleModel): string[] {
  return [...new Set(model.rules.map((rule) => rule.when))]
}

/** @throws UsageError for a state that no rule names: it would change nothing */
export function requireKnownState(model: LifecycleModel, state: unknown): void {
  const known = knownStates(model)
  if (typeof state === 'string' && known.includes(state)) return
  const rules =
    known.length > 0
      ? `a state that a rule of ${model.name} names (${known.join(', ')})`
      : `no state: ${model.name} has no rules`
  const near = (typeof state === 'string' && didYouMean(state, known)) || ';'
  throw new UsageError(
    `expected ${rules}, got ${JSON.stringify(state)}${near} --force stores it all the same, for handlers that read it`,
  )
}
