import type { Document } from 'mongodb'
import { isValid, typeName } from '../documents/type-name.js'
import { PARKED_AT } from '../terms/constants.js'
import { literal } from '../terms/terms.js'

/** What a step asks people. */
export interface AskedQuestion {
  /** What is asked. */
  readonly question: string
  /** The answers that it takes; none: any text. */
  readonly options: readonly string[]
  /** Whom it is meant for, for people to read; none: anybody. */
  readonly to: readonly string[]
  /** The answer that counts when nobody has given one in time; null: none. */
  readonly onTimeout: string | null
}

/** A question as it is stored in `progress.question`. */
export interface StoredQuestion extends AskedQuestion {
  /** Names this one question: a document that asks again has another one. */
  readonly id: string
  /** When it was asked, by the server's clock. */
  readonly askedAt: Date
  /** The token of the step that asked. */
  readonly by: string
  /** When it ends without an answer, by the server's clock; null: never. */
  readonly deadline: Date | null
  /** 1, and one more each time that a step asks the same again once that is over. */
  readonly times: number
}

/** An answer as it is stored in `progress.answer`. */
export interface StoredAnswer {
  /** The id of the question that it answers. */
  readonly questionId: string
  /** One of its options, or the text. */
  readonly option: string
  /** Who answered. */
  readonly by: string
  /** When, by the server's clock. */
  readonly at: Date
  /** What they had to say about it; null: nothing. */
  readonly comment: string | null
}

/**
 * When a document that asks without a deadline is due: never, in effect. Before that of parked documents: a rule, a wake and an answer find it
 * asleep, and `unpark` has nothing to do with it.
 */
export const ASKS_FOREVER = new Date('9999-12-01T00:00:00Z')

/** `lockedAt` of what sleeps until {@link ASKS_FOREVER}, whatever the lockTimeout is: at most a day. */
export const LOCKED_FOREVER = { $gte: new Date(ASKS_FOREVER.getTime() - 86_400_000), $lt: PARKED_AT } as const

/** Whether only an answer ends its sleep. */
export const sleepsForever = ({ lockedAt }: Document): boolean =>
  lockedAt instanceof Date && lockedAt >= LOCKED_FOREVER.$gte && lockedAt < LOCKED_FOREVER.$lt

/**
 * The question in a document's progress. A person may have put anything there: what isn't one is none, and one from before it entered its phase
 * was left there by a replica of a version that knows no questions.
 */
export function questionIn(progress: unknown): StoredQuestion | undefined {
  const { question: found, since } = Object(progress) as Document
  const { id, question, options, to, onTimeout, askedAt, by, deadline, times } = Object(found) as Document
  if (typeof id !== 'string' || typeof question !== 'string' || !isDate(askedAt)) return undefined
  if (isDate(since) && askedAt < since) return undefined
  return {
    ...{ id, question, askedAt, options: textsIn(options), to: textsIn(to) },
    onTimeout: typeof onTimeout === 'string' ? onTimeout : null,
    by: typeof by === 'string' ? by : '?',
    deadline: isDate(deadline) ? deadline : null,
    times: typeof times === 'number' ? times : 1,
  }
}

/** The answer in a document's progress to that question; undefined: there is none. */
export function answerIn(progress: unknown, { id }: StoredQuestion): StoredAnswer | undefined {
  const { questionId, option, by, at, comment } = Object(Object(progress)['answer']) as Document
  if (questionId !== id || typeof option !== 'string' || !isDate(at)) return undefined
  const said = typeof comment === 'string' ? comment : null
  return { questionId, option, by: typeof by === 'string' ? by : '?', at, comment: said }
}

/** Why nobody can answer a document that {@link sleepsForever}, of its question: 'is a number'. Only for one without an open question. */
export function whyUnanswerable(progress: unknown): string {
  const { question, since } = Object(progress) as Document
  if (typeName(question) !== 'an object') return `is ${typeName(question)}`
  const { id, question: text, askedAt } = question as Document
  const isUsable = { id: typeof id === 'string', question: typeof text === 'string', askedAt: isDate(askedAt) }
  const unusable = Object.entries(isUsable).flatMap(([field, usable]) => (usable ? [] : [field]))
  if (unusable.length > 0) return `lacks ${unusable.join(' and ')}`
  return isDate(since) && askedAt < since ? 'is from before it entered its phase' : 'was answered, or its time is over'
}

const isDate = (value: unknown): value is Date => value instanceof Date && isValid(value)
const textsIn = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((one) => typeof one === 'string') : []

/** Whether two questions ask the same, of the same people, with the same answers. */
export const asksTheSame = (one: AskedQuestion, other: AskedQuestion): boolean => textOf(one) === textOf(other)

const textOf = ({ question, options, to, onTimeout }: AskedQuestion) =>
  JSON.stringify([question, options, to, onTimeout])

/** What is stored of a question that is asked now. */
export const newQuestion = (
  { question, options, to, onTimeout }: AskedQuestion,
  asked: { readonly token: string; readonly now: unknown; readonly deadline: Document; readonly times: number },
): Document => ({
  id: literal(asked.token),
  question: literal(question),
  options: literal(options),
  to: literal(to),
  onTimeout: literal(onTimeout),
  askedAt: asked.now,
  by: literal(asked.token),
  deadline: asked.deadline,
  times: asked.times,
})
