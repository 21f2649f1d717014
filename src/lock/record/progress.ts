import type { Document } from 'mongodb'
import { canBeId } from '../documents/storable.js'
import { isValid, typeName } from '../documents/values.js'
import { literal, PARKED_AT } from '../terms/terms.js'

/** The parent of a document that a step of another one has inserted, as it is stored in `progress.parent`. */
export interface StoredParent {
  /** The lifecycle of its parent. */
  readonly lifecycle: string
  /** Its parent's `_id`. */
  readonly id: unknown
  /** Its parent's name for it: unique among the parent's children of this lifecycle. */
  readonly key: string
  /** The list of children that it was inserted with. */
  readonly list: string
  /**
   * The fence of the step that inserted it. A step with a lower one, which has lost the parent since, doesn't remove it. A document that is
   * inserted later with its parent's `_id` has higher ones, and doesn't take it for its own.
   */
  readonly fence?: number
}

/** A list of children of one lifecycle that a document's steps have inserted: an entry of `progress.children`. */
export interface ChildList {
  /** The list's name: a list of this name is inserted once. */
  readonly list: string
  /** The lifecycle of these children; null: the list was empty. */
  readonly lifecycle: string | null
  /** The number of children at the insert. */
  readonly total: number
}

/** The condition that ends a wait for children: see docs/children.md. */
export type ChildrenRule = 'allSucceeded' | 'allDone' | 'anyFailed' | `${number} of ${number}`

/** The event that a sleeping document awaits besides the end of its sleep, as it is stored in `progress.awaits`. */
export type StoredAwaits =
  | {
      /** Its children. */
      readonly kind: 'children'
      /** Until this is decided. */
      readonly rule: ChildrenRule
      /** The effect of a parked child: it is still waited for, or counts as failed. */
      readonly parked: 'waits' | 'fails'
      /** Or until any of them has ended. */
      readonly each?: boolean
    }
  | ({
      /** Another document. */
      readonly kind: 'document'
      /** Until it is in one of these. */
      readonly phases: readonly string[]
    } & DocumentName)

/** A document, by its lifecycle and its `_id`. */
export interface DocumentName {
  /** The name of its lifecycle. */
  readonly lifecycle: string
  /** Its `_id`. */
  readonly id: unknown
}

/** Reads the parent in a document's progress. A person may have put anything there: other values than a parent are ignored. */
export function parentIn(progress: unknown): StoredParent | undefined {
  const { parent } = Object(progress) as Document
  const { lifecycle, id, key, list, fence } = Object(parent) as Document
  if (typeof lifecycle !== 'string' || !canBeId(id) || typeof key !== 'string') return undefined
  return { lifecycle, id, key, list: typeof list === 'string' ? list : '', ...(typeof fence === 'number' && { fence }) }
}

/**
 * The least fence of this document's children: those with a lower one were inserted by a former document with its `_id`. Undefined: it has
 * inserted none, or in a version that didn't store it.
 */
export function childrenFromIn(progress: unknown): number | undefined {
  const { childrenFrom } = Object(progress) as Document
  return typeof childrenFrom === 'number' ? childrenFrom : undefined
}

/** True if a child was inserted by a former document with its parent's `_id`. Without fences it counts as this document's. */
export const isOfFormer = (parent: StoredParent, from: number | undefined): boolean =>
  parent.fence !== undefined && from !== undefined && parent.fence < from

/** The lists of children in a document's progress. */
export function childListsIn(progress: unknown): readonly ChildList[] {
  const { children } = Object(progress) as Document
  if (!Array.isArray(children)) return []
  return children.flatMap((one) => {
    const { list, lifecycle, total } = Object(one) as Document
    if (typeof list !== 'string' || !(typeof lifecycle === 'string' || lifecycle === null)) return []
    return [{ list, lifecycle, total: typeof total === 'number' ? total : 0 }]
  })
}

/** Reads the event that a sleeping document awaits; undefined: only its end. */
export function awaitsIn(progress: unknown): StoredAwaits | undefined {
  const { kind, rule, parked, each, phases, ...name } = Object(Object(progress)['awaits']) as Document
  if (kind === 'children' && typeof rule === 'string')
    return { kind, rule: rule as ChildrenRule, parked: parked === 'fails' ? 'fails' : 'waits', each: each === true }
  const [document] = namesIn([name])
  return kind === 'document' && document && Array.isArray(phases) ? { kind, ...document, phases } : undefined
}

/** The documents that wait for this one, as far as they have said so. */
export const waitersIn = (progress: unknown): readonly DocumentName[] => namesIn(Object(progress)['waiters'])

const namesIn = (list: unknown): DocumentName[] =>
  Array.isArray(list)
    ? list.flatMap((one) => {
        const { lifecycle, id } = Object(one) as Document
        return typeof lifecycle === 'string' && canBeId(id) ? [{ lifecycle, id }] : []
      })
    : []

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

/** True if a document that was read has a queued insert (pending-insert.ts). */
export const hasPendingInsert = (progress: unknown): boolean => Object(progress)['next'] !== undefined
