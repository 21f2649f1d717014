import type { Duration } from '../time/index.js'

/** The names that belong to Phaselock, and the owner's `state`: an outcome's `set` may not hold them. */
export const RESERVED_FIELDS = [
  '_id',
  'state',
  'phase',
  'lockedAt',
  'lockedBy',
  'fence',
  'progress',
  'createdAt',
  'updatedAt',
] as const
export type ReservedField = (typeof RESERVED_FIELDS)[number]

/** The owner's fields that a step may store. */
export type OwnFields<Doc> = Partial<Omit<Doc, ReservedField>>
export type WithSet<Doc> = { readonly set?: OwnFields<Doc> }

/**
 * How a step ends. `Next` is the union of phases that the current phase may go to; `Doc` is the owner's document.
 * Made by the step's own methods, so that `moveTo` takes just the phases that this one may go to.
 */
export type Outcome<Next extends string, Doc> =
  /** Unlock: the next step is due at once. */
  | ({ readonly kind: 'again'; readonly step?: string } & WithSet<Doc>)
  /** Relock: look again later, with progressive back-off unless `for` says when. Uses no attempt. */
  | ({ readonly kind: 'wait'; readonly reason: string; readonly for?: Duration } & WithSet<Doc>)
  /** Go to another phase. */
  | ({ readonly kind: 'moveTo'; readonly phase: Next } & WithSet<Doc>)
  /** Stop until a person, or the owner's state, moves it. */
  | ({ readonly kind: 'park'; readonly reason: string } & WithSet<Doc>)

/** Marks an outcome with the run of the handler that made it: an outcome of another step is refused. */
const MADE_BY = Symbol('phaselock:made-by')

/** Whether an outcome was made by this run's step, or by none at all. */
export const isMadeBy = (run: object, outcome: { readonly [MADE_BY]?: object }): boolean =>
  outcome[MADE_BY] === undefined || outcome[MADE_BY] === run

type AnyDoc = Record<string, unknown>

/** The part of a step that makes outcomes. */
export class Outcomes {
  readonly #run: object

  constructor(run: object) {
    this.#run = run
  }

  again(also?: { step?: string } & WithSet<AnyDoc>): Outcome<never, AnyDoc> {
    return this.#made({ kind: 'again', ...also })
  }
  wait(reason: string, also?: { for?: Duration } & WithSet<AnyDoc>): Outcome<never, AnyDoc> {
    return this.#made({ kind: 'wait', reason, ...also })
  }
  moveTo<P extends string>(phase: P, also?: WithSet<AnyDoc>): Outcome<P, AnyDoc> {
    return this.#made({ kind: 'moveTo', phase, ...also })
  }
  park(reason: string, also?: WithSet<AnyDoc>): Outcome<never, AnyDoc> {
    return this.#made({ kind: 'park', reason, ...also })
  }

  #made<T extends object>(outcome: T): T {
    return Object.assign(outcome, { [MADE_BY]: this.#run })
  }
}
