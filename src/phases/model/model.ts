import type { KeyLimit, Rename, StateRule, TellingLifecycle } from '../../lock/index.js'
import { didYouMean } from '../../options/index.js'
import { shown } from '../errors/kept-text.js'
import type { LifecycleSettings } from './settings.js'

/** A phase as the engine uses it. */
export interface Phase {
  readonly name: string
  readonly kind: 'working' | 'resting' | 'final'
  readonly next: readonly string[]
  readonly deadline:
    | { readonly afterMs: number; readonly goTo: string; readonly setState: string | undefined }
    | undefined
  /** Of a final phase: how long a document is kept, 0: removed at once. */
  readonly keepForMs: number
  /** Of a resting or final phase: it ended badly, for its parent. */
  readonly failed?: boolean | undefined
  /** Of a working phase: what each of its documents needs while it is held, by name. Absent: nothing. */
  readonly limits?: readonly LimitNeed[] | undefined
}

/** So many slots of a limit. */
export interface LimitNeed {
  readonly limit: string
  readonly slots: number
  /** The limit of a key: what each has, and of what, for people. */
  readonly key?: (KeyLimit & { readonly of: string }) | undefined
}

/** What the engine needs of a lifecycle, without the types of its document and graph. */
export interface LifecycleModel {
  readonly name: string
  readonly collection: string
  readonly phases: ReadonlyMap<string, Phase>
  readonly entries: readonly string[]
  readonly rules: readonly StateRule[]
  /** Phases of older versions. */
  readonly renames: readonly Rename[]
  /** The limits for which it declares a number of slots. Absent: none. */
  readonly declaredLimits?: ReadonlyMap<string, number>
  readonly settings: LifecycleSettings
}

/** Why a state isn't one that the lifecycle's rules and deadlines name, so that setting it would change nothing; undefined: it is. */
export function whyUnknownState({ name, rules, phases }: LifecycleModel, state: unknown): string | undefined {
  const set = [...phases.values()].map(({ deadline }) => deadline?.setState)
  const named = [...rules.flatMap((rule) => [rule.when, rule.setState]), ...set]
  const known = [...new Set(named.filter((one) => typeof one === 'string'))]
  if (typeof state === 'string' && known.includes(state)) return undefined
  const expected =
    known.length > 0 ? `a state that a rule of ${name} names (${known.join(', ')})` : `no state: ${name} has no rules`
  return `expected ${expected}, got ${shown(state)}${typeof state === 'string' ? didYouMean(state, known) : ''}`
}

/**
 * The phases in which a document has ended as far as its parent is concerned: final ones, and resting ones but those in which documents begin.
 */
export function endPhases({ phases, entries }: LifecycleModel): { succeeded: string[]; failed: string[] } {
  const ends = [...phases.values()].filter(
    ({ kind, name }) => kind === 'final' || (kind === 'resting' && !entries.includes(name)),
  )
  const named = (failed: boolean) => ends.filter((one) => (one.failed ?? false) === failed).map(({ name }) => name)
  return { succeeded: named(false), failed: named(true) }
}

/** All phases in which a child has ended. */
export function endsOf(model: LifecycleModel): string[] {
  const { succeeded, failed } = endPhases(model)
  return [...succeeded, ...failed]
}

/** The names of the phases in which documents are claimed. */
export const claimedPhases = ({ phases }: LifecycleModel): string[] =>
  [...phases.values()].filter(({ kind, deadline }) => kind === 'working' || deadline).map(({ name }) => name)

/** How the removal of its documents is told; undefined: it has no callbacks, and they are deleted at once. */
export function tellingOf({ name, phases, renames, settings }: LifecycleModel): TellingLifecycle | undefined {
  const { callbacks } = settings
  return callbacks && { lifecycle: name, callbacks, phases: [...phases.keys(), ...renames.map(({ from }) => from)] }
}

/** The names of the phases that have handlers. */
export const workingPhases = ({ phases }: LifecycleModel): string[] =>
  [...phases.values()].filter(({ kind }) => kind === 'working').map(({ name }) => name)
