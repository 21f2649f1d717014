import type { Document } from 'mongodb'
import { isValid, typeName } from '../documents/values.js'
import { literal, PARKED_AT } from '../terms/terms.js'

/** A question of a step to people. */
export interface AskedQuestion {
  /** Its text. */
  readonly question: string
  /** The answers that it takes; none: any text. */
  readonly options: readonly string[]
  /** The people it is meant for, as information; empty: anyone. */
  readonly to: readonly string[]
  /** The answer that counts if no one has given one in time; null: none. */
  readonly onTimeout: string | null
}

/** A question as it is stored in `progress.question`. */
export interface StoredQuestion extends AskedQuestion {
  /** The name of this one question: a document that asks again has another one. */
  readonly id: string
  /** The time of the question, by the server's clock. */
  readonly askedAt: Date
  /** The token of the step that asked. */
  readonly by: string
  /** The time when it ends without an answer, by the server's clock; null: never. */
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
  /** The person who answered. */
  readonly by: string
  /** The time of the answer, by the server's clock. */
  readonly at: Date
  /** The person's comment; null: none. */
  readonly comment: string | null
}

/**
 * The time when a document that asks without a deadline is due: never, in effect. It is before that of parked documents: a rule, a wake and an
 * answer find it asleep, and `unpark` has nothing to do with it.
 */
export const ASKS_FOREVER = new Date('9999-12-01T00:00:00Z')

/** The `lockedAt` of a sleep until {@link ASKS_FOREVER}, with any lockTimeout: at most a day. */
export const LOCKED_FOREVER = { $gte: new Date(ASKS_FOREVER.getTime() - 86_400_000), $lt: PARKED_AT } as const

/** True if only an answer ends its sleep. */
export const sleepsForever = ({ lockedAt }: Document): boolean =>
  lockedAt instanceof Date && lockedAt >= LOCKED_FOREVER.$gte && lockedAt < LOCKED_FOREVER.$lt

/**
 * Reads the question in a document's progress. A person may have put anything there: other values are ignored. So is a question from before the
 * document entered its phase: a replica of a version that knows no questions left it there.
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

/**
 * Returns why no one can answer a document that {@link sleepsForever}, about its question: 'is a number'. Only for one without an open question.
 */
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

/** True if two questions ask the same, of the same people, with the same answers. */
export const asksTheSame = (one: AskedQuestion, other: AskedQuestion): boolean => textOf(one) === textOf(other)

const textOf = ({ question, options, to, onTimeout }: AskedQuestion) =>
  JSON.stringify([question, options, to, onTimeout])

/** The stored form of a question that is asked now. */
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
