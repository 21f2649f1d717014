import type { DocumentName } from '../../lock/index.js'
import { meant } from '../../options/index.js'
import type { Duration } from '../../time/index.js'
import { InvalidOutcome } from '../errors/errors.js'
import { cut, shown } from '../errors/kept-text.js'

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
export type OwnFields<Doc> = { [Field in keyof Omit<Doc, ReservedField>]?: Doc[Field] | undefined }
/** The owner's fields to store together with an outcome: `undefined` removes one, Phaselock's own are refused. */
export type WithSet<Doc> = { readonly set?: OwnFields<Doc> }

/** A question to people. */
export interface Ask {
  /** The text for people: at most 1,000 characters. */
  readonly question: string
  /** The answers that it takes: at most 20, each of at most 100 characters. Default: any text. */
  readonly options?: readonly string[] | undefined
  /** The people it is meant for. It is shown, and not enforced: anyone may answer. Default: anyone. */
  readonly to?: string | readonly string[] | undefined
  /** The time after which it is over, by the server's clock, and the handler runs with `answer.timedOut`. Default: it waits as long as it takes. */
  readonly timeout?: Duration | undefined
  /** The answer that counts then. Default: none. */
  readonly onTimeout?: string | undefined
}

/**
 * The end of a step. `Next` is the union of phases that the current phase may go to; `Doc` is the owner's document. Made by the step's own methods,
 * so that `moveTo` takes only the phases that this one may go to.
 */
export type Outcome<Next extends string, Doc> =
  /** Unlock: the next step is due immediately. */
  | ({ readonly kind: 'again'; readonly step?: string } & WithSet<Doc>)
  /** Relock: look again later, with progressive back-off unless `for` says when. Uses no attempt. */
  | ({ readonly kind: 'wait'; readonly reason: string; readonly for?: Duration; readonly on?: string } & WithSet<Doc>)
  /** Let go until a person answers. */
  | ({ readonly kind: 'ask' } & Ask & WithSet<Doc>)
  /** Go to another phase. */
  | ({ readonly kind: 'moveTo'; readonly phase: Next } & WithSet<Doc>)
  /** Stop until a person, or the owner's state, moves it. */
  | ({ readonly kind: 'park'; readonly reason: string } & WithSet<Doc>)

/** Marks an outcome with the run of the handler that made it: an outcome of another step is refused. */
const MADE_BY = Symbol('phaselock:made-by')

/** True if an outcome was made by this run's step, or carries no mark. */
export const isMadeBy = (run: object, outcome: { readonly [MADE_BY]?: object }): boolean =>
  outcome[MADE_BY] === undefined || outcome[MADE_BY] === run

/** True if an outcome carries no mark: a handler made it itself, or in a thread. Its keys are still to be checked. */
export const isUnmarked = (outcome: { readonly [MADE_BY]?: object }): boolean => outcome[MADE_BY] === undefined

/** The options that an outcome takes besides its first argument. */
const OPTIONS = {
  again: ['step', 'set'],
  wait: ['for', 'on', 'set'],
  ask: ['question', 'options', 'to', 'timeout', 'onTimeout', 'set'],
  moveTo: ['set'],
  park: ['set'],
} as const

/**
 * Refuses unknown options. Silently ignored, they would make an endless loop of an `again('next')`, and lose the fields of a `{ sets: ... }`.
 * @param arguments_ the keys that it has besides its options
 * @throws InvalidOutcome
 */
export function requireOptions(kind: keyof typeof OPTIONS, also: unknown, arguments_: readonly string[] = []): void {
  const known: readonly string[] = OPTIONS[kind]
  if (typeof also !== 'object' || also === null || Array.isArray(also)) {
    const [name] = known
    const hint = typeof also === 'string' && name !== 'set' ? `, as in { ${name}: ${shown(also)} }` : ''
    throw new InvalidOutcome(`${kind}: expected an object with ${known.join(', ')}${hint}, got ${shown(also)}`)
  }
  const unknown = Object.keys(also).find((key) => !known.includes(key) && !arguments_.includes(key))
  if (unknown === undefined) return
  const name = cut(unknown, 'stepName')
  throw new InvalidOutcome(`${kind}: unknown option '${name}'${meant(name, known)}; known: ${known.join(', ')}`)
}

type AnyDoc = Record<string, unknown>

/** The part of a step that makes outcomes. @throws InvalidOutcome for options that it doesn't know */
export class Outcomes {
  readonly #run: object

  constructor(run: object) {
    this.#run = run
  }

  again(also?: { step?: string } & WithSet<AnyDoc>): Outcome<never, AnyDoc> {
    return this.#made({ kind: 'again' }, also)
  }
  wait(reason: string, also?: { for?: Duration; on?: string } & WithSet<AnyDoc>): Outcome<never, AnyDoc> {
    return this.#made({ kind: 'wait', reason }, also)
  }
  ask(question: Ask & WithSet<AnyDoc>): Outcome<never, AnyDoc> {
    // JavaScript may pass nothing.
    requireOptions('ask', question)
    return this.#made({ kind: 'ask' }, question)
  }
  moveTo<P extends string>(phase: P, also?: WithSet<AnyDoc>): Outcome<P, AnyDoc> {
    return this.#made({ kind: 'moveTo', phase }, also)
  }
  park(reason: string, also?: WithSet<AnyDoc>): Outcome<never, AnyDoc> {
    return this.#made({ kind: 'park', reason }, also)
  }

  #made<T extends { readonly kind: keyof typeof OPTIONS }, A extends object>(outcome: T, also: A | undefined): T & A {
    if (also !== undefined) requireOptions(outcome.kind, also)
    return Object.assign(outcome, also, { [MADE_BY]: this.#run })
  }
}

/** Phases of one document that a step waits for: made by a lifecycle's `at`. */
export interface DocumentPhases extends DocumentName {
  /** The phases, one of which the document must be in. */
  readonly phases: readonly string[]
}

/** The options for waiting for another document. */
export interface WaitForOptions {
  /** The time that the document sleeps at most before it looks again, in case the other one's move isn't reported. Default 1m. */
  readonly recheck?: Duration | undefined
}

/** The position of another document that a step waits for. */
export interface Reached {
  /** True once it is in one of the phases. Until then: `return step.wait(there.text)`, and the document is woken when it is. */
  readonly done: boolean
  /** The phase that it is in; undefined: there is no such document. */
  readonly phase: string | undefined
  /** For people: `order o-1 is in Packing, not in Shipped`. */
  readonly text: string
}
