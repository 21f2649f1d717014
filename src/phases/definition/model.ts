import type { Rename, StateRule } from '../../lock/index.js'
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
  readonly settings: LifecycleSettings
}

/** The names of the phases that have handlers. */
export const workingPhases = ({ phases }: LifecycleModel): string[] =>
  [...phases.values()].filter(({ kind }) => kind === 'working').map(({ name }) => name)
