import type { KeyLimit, NotifyingLifecycle, Rename, StateRule } from '../../lock/index.js'
import { didYouMean } from '../../options/index.js'
import { shown } from '../errors/kept-text.js'
import type { LifecycleSettings } from './settings.js'

/** A phase as the engine uses it. */
export interface Phase {
  readonly name: string
  readonly kind: 'working' | 'resting' | 'final'
  readonly next: readonly string[]
  readonly deadline:
    | { readonly afterMs: number; readonly moveTo: string; readonly setState: string | undefined }
    | undefined
  /** The time that a document stays in a final phase, 0: it is removed immediately. */
  readonly keepForMs: number
  /** True for a resting or final phase that counts as a failure for the document's parent. */
  readonly failed?: boolean | undefined
  /** The limits that each document of a working phase needs while it is held, by name. Absent: none. */
  readonly limits?: readonly LimitNeed[] | undefined
}

/** A number of slots of a limit. */
export interface LimitNeed {
  readonly limit: string
  readonly slots: number
  /** For the limit of a key: the slots or rate of each key, and the keys' common name for people. */
  readonly key?: (KeyLimit & { readonly of: string }) | undefined
}

/** The engine's view of a lifecycle, without the types of its document and graph. */
export interface LifecycleModel {
  readonly name: string
  readonly collection: string
  readonly phases: ReadonlyMap<string, Phase>
  readonly entries: readonly string[]
  readonly rules: readonly StateRule[]
  /** The phases of older versions. */
  readonly renames: readonly Rename[]
  /** The limits whose number of slots it declares. Absent: none. */
  readonly declaredLimits?: ReadonlyMap<string, number>
  readonly settings: LifecycleSettings
}

/**
 * The reason why a state isn't one that the lifecycle's rules and deadlines name, so that setting it would change nothing. Undefined: they name it.
 */
export function whyUnknownState({ name, rules, phases }: LifecycleModel, state: unknown): string | undefined {
  const set = [...phases.values()].map(({ deadline }) => deadline?.setState)
  const named = [...rules.flatMap((rule) => [rule.when, rule.setState]), ...set]
  const known = [...new Set(named.filter((one) => typeof one === 'string'))]
  if (typeof state === 'string' && known.includes(state)) return undefined
  const expected =
    known.length > 0 ? `a state that a rule of ${name} names (${known.join(', ')})` : `no state: ${name} has no rules`
  return `expected ${expected}, got ${shown(state)}${typeof state === 'string' ? didYouMean(state, known) : ''}`
}

/** The phases where a child has ended for its parent: final ones, and resting ones other than entry phases. */
export function endPhases({ phases, entries }: LifecycleModel): { succeeded: string[]; failed: string[] } {
  const ends = [...phases.values()].filter(
    ({ kind, name }) => kind === 'final' || (kind === 'resting' && !entries.includes(name)),
  )
  const named = (failed: boolean) => ends.filter((one) => (one.failed ?? false) === failed).map(({ name }) => name)
  return { succeeded: named(false), failed: named(true) }
}

/** All phases where a child has ended. */
export function endsOf(model: LifecycleModel): string[] {
  const { succeeded, failed } = endPhases(model)
  return [...succeeded, ...failed]
}

/** The names of the phases whose documents are claimed. */
export const claimedPhases = ({ phases }: LifecycleModel): string[] =>
  [...phases.values()].filter(({ kind, deadline }) => kind === 'working' || deadline).map(({ name }) => name)

/** The settings for reporting a removal to callbacks; undefined: the lifecycle has no callbacks, and its documents are deleted immediately. */
export function notifyingOf({ name, phases, renames, settings }: LifecycleModel): NotifyingLifecycle | undefined {
  const { callbacks } = settings
  return callbacks && { lifecycle: name, callbacks, phases: [...phases.keys(), ...renames.map(({ from }) => from)] }
}

/** The names of the phases that have handlers. */
export const workingPhases = ({ phases }: LifecycleModel): string[] =>
  [...phases.values()].filter(({ kind }) => kind === 'working').map(({ name }) => name)
