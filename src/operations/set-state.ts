import { didYouMean } from '../options/index.js'
import type { LifecycleModel } from '../phases/index.js'
import { asOwner, type Done, doneTo, type Force, requireDone } from './as-owner.js'
import { UsageError } from './errors.js'
import { type DocumentRef, findDocument } from './find.js'
import { modelOf, type System } from './system.js'

/** What a document's owner wants now, and what comes of it. */
export interface StateSet extends Done {
  readonly state: string
  /** false: the owner wanted that already. */
  readonly changed: boolean
  /** `such a phase` where it isn't a string. */
  readonly phase: string
  /** The phase that a state rule moves it to; undefined: no rule does from its phase. */
  readonly goesTo: string | undefined
  /** Whether that has to wait until nobody holds it. */
  readonly held: boolean
}

/**
 * Sets what the owner of a document wants; its state rules do the rest.
 * @param force even a state that no rule names, for handlers that read it
 * @example await setState(system, { id: 'shop' }, 'Deleted') // { ..., changed: true, phase: 'Created', goesTo: 'Deleting', held: false }
 * @throws NotFound; UsageError, also for a state that no rule names
 */
export async function setState(
  system: System,
  ref: DocumentRef,
  state: string,
  { force = false }: Force = {},
): Promise<StateSet> {
  const found = await findDocument(system, ref)
  const model = modelOf(system, found.lifecycle)
  if (!force) requireKnownState(model, state)
  const verdict = await asOwner(system, found.lifecycle, (owner) => owner.setState(found.document['_id'], state))
  requireDone(system, verdict, found, `set to ${state}`)
  const { phase } = found.document
  const rule = model.rules.find(({ when, from }) => when === state && from.includes(phase))
  const held = found.condition.kind === 'held'
  return {
    ...doneTo(found),
    state,
    changed: verdict === 'done',
    phase: typeof phase === 'string' ? phase : 'such a phase',
    goesTo: rule?.goTo,
    held,
  }
}

/** @throws UsageError for a state that no rule names: it would change nothing */
export function requireKnownState({ name, rules }: LifecycleModel, state: unknown): void {
  const known = [...new Set(rules.map((rule) => rule.when))]
  if (typeof state === 'string' && known.includes(state)) return
  const expected =
    known.length > 0 ? `a state that a rule of ${name} names (${known.join(', ')})` : `no state: ${name} has no rules`
  throw new UsageError(
    `expected ${expected}, got ${JSON.stringify(state)}${typeof state === 'string' ? didYouMean(state, known) : ''}`,
    { reason: 'unknownState', got: state, known },
    '--force stores it anyway, for handlers that read it',
  )
}
