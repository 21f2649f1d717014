import { BSON } from 'mongodb'
import type { AskedQuestion, DocumentName } from '../../lock/index.js'
import { meant } from '../../options/index.js'
import { type Duration, durationMs } from '../../time/index.js'
import { InvalidOutcome } from '../errors/errors.js'
import { cut, MOST_CHARACTERS, shown, textOf } from '../errors/kept-text.js'
import { withSet } from '../errors/storable.js'

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
const isUnmarked = (outcome: { readonly [MADE_BY]?: object }): boolean => outcome[MADE_BY] === undefined

const OPTIONS = {
  again: ['step', 'set'],
  wait: ['for', 'on', 'set'],
  ask: ['question', 'options', 'to', 'timeout', 'onTimeout', 'set'],
  moveTo: ['set'],
  park: ['set'],
} as const

/**
 * Refuses unknown options. Silently ignored, they would make an endless loop of an `again('next')`, and lose the fields of a `{ sets: ... }`.
 * @param known their names
 * @param arguments_ the keys that it has besides them
 * @throws InvalidOutcome
 */
export function requireKnown(
  called: string,
  options: unknown,
  known: readonly string[],
  arguments_: readonly string[] = [],
): Record<string, unknown> {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    const [name] = known
    const hint = typeof options === 'string' && name !== 'set' ? `, as in { ${name}: ${shown(options)} }` : ''
    throw new InvalidOutcome(`${called}: expected an object with ${known.join(', ')}${hint}, got ${shown(options)}`)
  }
  const unknown = Object.keys(options).find((key) => !known.includes(key) && !arguments_.includes(key))
  if (unknown === undefined) return options as Record<string, unknown>
  const name = cut(unknown, 'stepName')
  throw new InvalidOutcome(`${called}: unknown option '${name}'${meant(name, known)}; known: ${known.join(', ')}`)
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
    requireKnown('ask', question, OPTIONS.ask)
    return this.#made({ kind: 'ask' }, question)
  }
  moveTo<P extends string>(phase: P, also?: WithSet<AnyDoc>): Outcome<P, AnyDoc> {
    return this.#made({ kind: 'moveTo', phase }, also)
  }
  park(reason: string, also?: WithSet<AnyDoc>): Outcome<never, AnyDoc> {
    return this.#made({ kind: 'park', reason }, also)
  }

  #made<T extends { readonly kind: keyof typeof OPTIONS }, A extends object>(outcome: T, also: A | undefined): T & A {
    if (also !== undefined) requireKnown(outcome.kind, also, OPTIONS[outcome.kind])
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

type Fields = Readonly<Record<string, unknown>>
/** The part of a phase that its handlers' outcomes are checked by. */
type FromPhase = { readonly name: string; readonly next: readonly string[] }

/** An outcome whose fields have all been checked: handlers may be JavaScript, or have used `any`. */
export type ReadOutcome = { readonly set: Fields | undefined } & (
  | { readonly kind: 'again'; readonly step: string | null }
  | { readonly kind: 'wait'; readonly reason: string; readonly on: string | undefined; readonly forMs: number | null }
  | { readonly kind: 'ask'; readonly question: AskedQuestion; readonly forMs: number | null }
  | { readonly kind: 'moveTo'; readonly phase: string }
  | { readonly kind: 'park'; readonly reason: string }
)

const EXPECTED = 'expected the result of step.again(), step.wait(), step.ask(), step.moveTo() or step.park()'
const ARGUMENTS = {
  again: ['kind'],
  wait: ['kind', 'reason'],
  ask: ['kind'],
  moveTo: ['kind', 'phase'],
  park: ['kind', 'reason'],
}
const DOCUMENT_LIMIT = 16 * 1024 * 1024

/**
 * Reads the outcome that a handler returned, and checks it at run time.
 * @throws InvalidOutcome with the expected and the given value; nothing is stored then
 */
export function readOutcome(value: unknown, run: object, phase: FromPhase, progressField: string): ReadOutcome {
  const notAnOutcome = (what: string) =>
    new InvalidOutcome(`the handler of phase '${phase.name}' returned ${what}; ${EXPECTED}`)
  if (typeof value === 'function')
    throw notAnOutcome(`the function ${cut(value.name, 'stepName') || 'without a name'} without calling it`)
  if (typeof value !== 'object' || value === null) throw notAnOutcome(cut(textOf(value, 'nothing'), 'reason'))
  const outcome = value as Record<string, unknown>
  const { kind } = outcome
  if (!isMadeBy(run, outcome)) throw notAnOutcome('an outcome of another step')
  const set = readSet(outcome['set'], progressField)
  if (isUnmarked(outcome) && typeof kind === 'string' && Object.hasOwn(ARGUMENTS, kind))
    requireKnown(kind, outcome, OPTIONS[kind as keyof typeof OPTIONS], ARGUMENTS[kind as keyof typeof ARGUMENTS])
  switch (kind) {
    case 'again':
      return { kind, step: readName(outcome['step']), set }
    case 'wait':
      return {
        ...{ kind, reason: readReason(outcome['reason'], kind), on: readOn(outcome['on']) },
        ...{ forMs: readFor(outcome['for'], 'wait: for'), set },
      }
    case 'ask':
      return { kind, ...readAsk(outcome), set }
    case 'moveTo':
      return { kind, phase: readPhase(outcome['phase'], phase), set }
    case 'park':
      return { kind, reason: readReason(outcome['reason'], kind), set }
    default:
      throw notAnOutcome(kind === undefined ? `an object with ${namesOf(outcome)}` : `kind ${shown(kind)}`)
  }
}

const namesOf = (outcome: object): string => cut(Object.keys(outcome).slice(0, 20).join(', '), 'reason') || 'nothing'

function readPhase(to: unknown, phase: FromPhase): string {
  if (typeof to === 'string' && phase.next.includes(to)) return to
  throw new InvalidOutcome(
    `moveTo(${shown(to)}): from '${phase.name}', expected one of the phases in its next: ${phase.next.join(', ')}`,
  )
}

function readName(step: unknown): string | null {
  if (step === undefined) return null
  const { stepName: most } = MOST_CHARACTERS
  if (typeof step === 'string' && step !== '' && step.length <= most) return step
  const long = typeof step === 'string' && step !== '' ? `one of ${step.length}: ` : ''
  throw new InvalidOutcome(`again: expected a step's name of at most ${most} characters, got ${long}${shown(step)}`)
}

function readReason(reason: unknown, kind: string, what = 'reason'): string {
  if (typeof reason === 'string' && reason !== '') return cut(reason, 'reason')
  throw new InvalidOutcome(`${kind}: expected a ${what}, got ${shown(reason)}`)
}

function readOn(on: unknown): string | undefined {
  if (on === undefined || (typeof on === 'string' && /^[\w.-]{1,50}$/.test(on))) return on
  throw new InvalidOutcome(
    `wait: on: expected letters, digits, _, - and ., at most 50, as in 'certificate', got ${shown(on)}`,
  )
}

function readFor(value: unknown, what: string): number | null {
  if (value === undefined) return null
  try {
    return durationMs(value as Duration)
  } catch (error) {
    throw new InvalidOutcome(`${what}: ${(error as Error).message}`)
  }
}

const MOST_OPTIONS = 20
const LONGEST_OPTION = 100
const LONGEST_TIMEOUT_MS = 100 * 365 * 86_400_000

function readAsk({ question, options, to, timeout, onTimeout }: Record<string, unknown>) {
  const asked: AskedQuestion = {
    question: readReason(question, 'ask', 'question'),
    options: readTexts(options, 'options'),
    to: readTexts(typeof to === 'string' ? [to] : to, 'to'),
    onTimeout: (onTimeout as string | undefined) ?? null,
  }
  const forMs = readFor(timeout, 'ask: timeout')
  const wrong = (expected: string, got: unknown) => new InvalidOutcome(`ask: expected ${expected}, got ${shown(got)}`)
  if (forMs !== null && (forMs <= 0 || forMs > LONGEST_TIMEOUT_MS))
    throw wrong('a timeout of more than 0 and at most 36500d', timeout)
  if (onTimeout === undefined) return { question: asked, forMs }
  if (forMs === null) throw new InvalidOutcome('ask: expected a timeout beside onTimeout: without one it never counts')
  if (asked.options.length > 0 && !asked.options.includes(onTimeout as string))
    throw wrong(`one of its options (${asked.options.join(', ')}) as onTimeout`, onTimeout)
  if (typeof onTimeout !== 'string' || onTimeout === '') throw wrong('a text as onTimeout', onTimeout)
  return { question: asked, forMs }
}

/** Reads a list of different texts, so that each has a meaning of its own. */
function readTexts(value: unknown, name: string): readonly string[] {
  if (value === undefined) return []
  const isText = (one: unknown) => typeof one === 'string' && one !== '' && one.length <= LONGEST_OPTION
  if (Array.isArray(value) && value.length > 0 && value.length <= MOST_OPTIONS && value.every(isText)) {
    if (new Set(value).size === value.length) return [...value]
  }
  throw new InvalidOutcome(
    `ask: expected ${name} to be 1 to ${MOST_OPTIONS} different texts of at most ${LONGEST_OPTION} characters, got ${shown(value)}`,
  )
}

const RESERVED: ReadonlySet<string> = new Set(RESERVED_FIELDS.filter((name) => name !== 'progress'))

/**
 * Reads the owner's fields that an outcome or a checkpoint stores.
 * @throws InvalidOutcome for fields that are not the owner's, names and values that can't be stored as they are
 */
export function readSet(set: unknown, progressField: string): Fields | undefined {
  if (set === undefined) return undefined
  const size = withSet(set, (fields) => BSON.calculateObjectSize(fields))
  const names = Object.keys(set as object)
  for (const name of names) {
    if (name === progressField || RESERVED.has(name)) {
      throw new InvalidOutcome(`set: '${name}' is written by Phaselock or by the document's owner; choose another name`)
    }
    if (name === '' || name.startsWith('$') || name.includes('.') || name.includes('\0')) {
      throw new InvalidOutcome(
        `set: '${cut(name, 'stepName')}' can't be a field name here: expected no leading '$', no '.' and no NUL`,
      )
    }
  }
  if (size > DOCUMENT_LIMIT) {
    throw new InvalidOutcome(
      `set: ${Math.ceil(size / 1024 / 1024)} MB is more than a document can hold (16 MB); store large data elsewhere`,
    )
  }
  return names.length > 0 ? (set as Fields) : undefined
}
