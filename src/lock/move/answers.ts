import type { Collection, Db, Document, Filter } from 'mongodb'
import { asReadable, onClaimIndex, readOwnFields } from '../documents/read.js'
import {
  hasToken,
  isNotHeld,
  isParked,
  LEASE_FIELDS,
  NOT_PARKED,
  PUT_TO_SLEEP,
  WITHOUT_TOKEN,
} from '../lease/lease-state.js'
import { answerIn, LOCKED_FOREVER, questionIn, type StoredAnswer, type StoredQuestion } from '../record/progress.js'
import { historyWith } from '../record/step-end.js'
import { lifecyclesOf } from '../registry/in-force.js'
import { inProgress, isDate, literal, type Terms } from '../terms/terms.js'
import { DUE_AND_NOBODYS, DUE_SINCE_NOW, type OwnerWriteOptions, type Write } from './owner-writes.js'

/** An answer to the question that a document asks. */
export interface NewAnswer {
  readonly option: string
  readonly by: string
  readonly comment: string | null
  /** The question that is meant. Default: the one that it asks now. */
  readonly question?: string | undefined
}

/** The outcome of an answer. */
export type Answered =
  /** It is stored, and the document is due. */
  | { readonly kind: 'answered'; readonly question: string; readonly option: string }
  /** There is no such document. */
  | { readonly kind: 'notFound' }
  /** It asks nothing, or no longer that question. */
  | { readonly kind: 'notAsking' }
  /** A step of it runs now: it was woken, or the question's time is over. */
  | { readonly kind: 'held' }
  /** Its step has parked it. */
  | { readonly kind: 'parked' }
  /** Another answer was first. */
  | ({ readonly kind: 'alreadyAnswered' } & Pick<StoredAnswer, 'option' | 'by' | 'at'>)
  /** Its time was over, by the server's clock. */
  | { readonly kind: 'timedOut'; readonly deadline: Date }
  /** The question takes one of these. */
  | { readonly kind: 'notAnOption'; readonly options: readonly string[] }

/**
 * Stores an answer and makes its document due, in one update that the server judges: of two answers, or an answer and the end of the question's
 * time, one counts.
 * @param heldBackMs the size of a forward step of the server's clock that isn't confirmed yet: no question ends by it
 */
export async function storeAnswer(
  documents: Collection,
  terms: Terms,
  id: unknown,
  answer: NewAnswer,
  options: OwnerWriteOptions & { readonly heldBackMs?: number },
  where: Filter<Document> = {},
): Promise<Answered> {
  const { heldBackMs = 0, ...session } = options
  const seen = await answerWrite(documents, terms, id, answer, options, where)
  if ('refusal' in seen) return seen.refusal
  const { question } = seen
  const [filter, update] = seen.write
  const { matchedCount } = await documents.updateOne({ _id: id as never, $and: [filter] }, update, session)
  if (matchedCount > 0) return { kind: 'answered', question: question.question, option: answer.option }
  const now = await questionOf(documents, terms, id, session)
  // Held for a moment, and free again.
  return whyNot(now, question.id, answer.option, heldBackMs) ?? { kind: 'held' }
}

/** The filter and the update that store an answer to the question that a document asks now; or the reason why it takes none. */
export async function answerWrite(
  documents: Collection,
  terms: Terms,
  id: unknown,
  { option, by, comment, question: meant }: NewAnswer,
  { heldBackMs = 0, ...options }: OwnerWriteOptions & { readonly heldBackMs?: number },
  where: Filter<Document> = {},
): Promise<{ readonly refusal: Answered } | { readonly write: Write; readonly question: StoredQuestion }> {
  const seen = await questionOf(documents, terms, id, options)
  const refusal = whyNot(seen, meant, option, heldBackMs)
  if (refusal) return { refusal }
  const { question } = seen as Asking
  const told = comment === null ? '' : `: ${comment}`
  const history = historyWith(terms, { outcome: 'owner', reason: `answered '${option}'${told}`, by })
  const answer = {
    questionId: literal(question.id),
    ...{ option: literal(option), by: literal(by), comment: literal(comment), at: '$$NOW' },
  }
  const isOpen = { $and: [isInTime(terms, heldBackMs), { $not: [isAnswered(terms)] }] }
  const filter = {
    $and: [
      where,
      { [`${terms.progress}.question.id`]: { $eq: question.id }, $expr: isOpen },
      { ...WITHOUT_TOKEN, ...NOT_PARKED },
      ...(terms.legacyWriters ? [isNotHeld(terms)] : []),
    ],
  }
  const answered = {
    ...DUE_AND_NOBODYS,
    ...DUE_SINCE_NOW,
    [terms.progress]: { $mergeObjects: [`$${terms.progress}`, { answer, history }] },
  }
  return { write: [filter, [{ $set: answered }, { $unset: `${terms.progress}.resumeAt` }]], question }
}

/** True if the question's time isn't over. */
const isInTime = (terms: Terms, heldBackMs = 0): Document => {
  const deadline = inProgress(terms, 'question.deadline')
  const isOver = { $lte: [{ $add: [deadline, heldBackMs] }, '$$NOW'] }
  return { $cond: [isDate(deadline), { $not: [isOver] }, true] }
}

interface Asking {
  readonly question: StoredQuestion
  readonly answer: StoredAnswer | undefined
  readonly document: Document
}

type Seen = Asking | 'notFound' | 'notAsking'

async function questionOf(
  documents: Collection,
  { progress }: Terms,
  id: unknown,
  options: OwnerWriteOptions,
): Promise<Seen> {
  const projection = {
    ...LEASE_FIELDS,
    now: '$$NOW',
    [`${progress}.since`]: 1,
    [`${progress}.question`]: 1,
    [`${progress}.answer`]: 1,
  }
  const [document] = await readOwnFields((how) =>
    documents.find({ _id: id as never }, { projection, limit: 1, ...how, ...options }).toArray(),
  )
  if (!document) return 'notFound'
  const question = questionIn(document[progress])
  return question ? { question, answer: answerIn(document[progress], question), document } : 'notAsking'
}

/** Returns why an answer can't be stored, as far as the document shows it. */
function whyNot(seen: Seen, meant: string | undefined, option: string, heldBackMs: number): Answered | undefined {
  if (typeof seen === 'string') return { kind: seen }
  const { question, answer, document } = seen
  if (meant !== undefined && question.id !== meant) return { kind: 'notAsking' }
  if (answer) return { kind: 'alreadyAnswered', option: answer.option, by: answer.by, at: answer.at }
  if (isParked(document)) return { kind: 'parked' }
  if (hasToken(document)) return { kind: 'held' }
  const { options, deadline } = question
  const isOver = deadline && deadline.getTime() + heldBackMs <= document['now'].getTime()
  if (isOver) return { kind: 'timedOut', deadline }
  return options.length > 0 && !options.includes(option) ? { kind: 'notAnOption', options } : undefined
}

/** The milliseconds by which the server's clock has stepped forward without a confirmation yet; 0: it hasn't. */
export async function unconfirmedStepMs(db: Db, lifecycle: string): Promise<number> {
  const isOpen = { $and: [isDate('$clockStep.until'), { $gt: ['$clockStep.until', '$$NOW'] }] }
  const found = await lifecyclesOf(db).findOne({ _id: lifecycle, $expr: isOpen }, { projection: { clockStep: 1 } })
  const ms: unknown = found?.['clockStep']?.ms
  return typeof ms === 'number' && ms > 0 ? ms : 0
}

/** An open question, and the document that asks it. */
export interface OpenQuestion extends StoredQuestion {
  readonly _id: unknown
  readonly phase: string
}

/** True for a sleeping document that waits for an answer, as an expression. */
export const isAsking = (terms: Terms): Document => ({
  $and: [{ $eq: [{ $type: inProgress(terms, 'question.id') }, 'string'] }, isUnanswered(terms)],
})

/** True for a question that is neither answered nor over. */
const isUnanswered = (terms: Terms): Document => ({ $and: [isInTime(terms), { $not: [isAnswered(terms)] }] })

/** {@link answerIn} as an expression: other values that a person has put there are no answer. */
const isAnswered = (terms: Terms): Document => ({
  $and: [
    { $eq: [inProgress(terms, 'answer.questionId'), inProgress(terms, 'question.id')] },
    { $eq: [{ $type: inProgress(terms, 'answer.option') }, 'string'] },
    isDate(inProgress(terms, 'answer.at')),
  ],
})

/** Matches documents in these phases that sleep until they are answered, and have no question that a user could answer. */
export function unanswerable(terms: Terms, phases: readonly string[]): Filter<Document> {
  const [since, askedAt] = [inProgress(terms, 'since'), inProgress(terms, 'question.askedAt')]
  const isQuestion = [
    { $eq: [{ $type: inProgress(terms, 'question.question') }, 'string'] },
    isDate(askedAt),
    { $not: [{ $and: [isDate(since), { $lt: [askedAt, since] }] }] },
  ]
  return {
    ...{ phase: { $in: [...phases] }, lockedBy: null, lockedAt: LOCKED_FOREVER },
    $expr: { $not: [{ $and: [isAsking(terms), ...isQuestion] }] },
  }
}

/** {@link isAsking} for a query: the server looks at the field first. */
const isOpenQuestion = (terms: Terms): Document => ({
  [`${terms.progress}.question.id`]: { $type: 'string' },
  $expr: isUnanswered(terms),
})

/**
 * Reads the open questions in these phases, oldest first. It reads the sleeping documents of these phases by the claim index, one key and one
 * document for each.
 * @param to only those that are meant for this person, or for no one in particular
 */
export async function openQuestions(
  documents: Collection,
  terms: Terms,
  phases: readonly string[],
  { limit, to }: { readonly limit: number; readonly to?: string | undefined },
): Promise<OpenQuestion[]> {
  const meant = `${terms.progress}.question.to`
  const isMeant = {
    $or: [{ [meant]: { $eq: to } }, { [meant]: { $size: 0 } }, { [meant]: { $not: { $type: 'array' } } }],
  }
  const projection = { phase: 1, [`${terms.progress}.since`]: 1, [`${terms.progress}.question`]: 1 }
  const pipeline = [
    {
      $match: {
        phase: { $in: [...phases] },
        ...PUT_TO_SLEEP,
        ...isOpenQuestion(terms),
        ...(to !== undefined && isMeant),
      },
    },
    { $sort: { [`${terms.progress}.question.askedAt`]: 1 } },
    { $limit: limit },
    { $project: projection },
  ]
  const found = await onClaimIndex(documents, (hint) =>
    asReadable((how) => documents.aggregate(pipeline, { hint, ...how }).toArray()),
  )
  return found.flatMap((document) => {
    const question = questionIn(document[terms.progress])
    return question ? [{ ...question, _id: document['_id'], phase: document['phase'] }] : []
  })
}
