import { type Answered, MissingIndex, type OpenQuestion, readLockTimeouts } from '../../lock/index.js'
import type { OwnerClient } from '../../phases/index.js'
import { systemClock } from '../../time/index.js'
import { type DocumentRef, documentMeant } from '../inspect/find.js'
import { requireSeen, requireStillSeen } from '../inspect/seen.js'
import { Refused } from '../system/errors.js'
import { modelOf, type System } from '../system/system.js'
import { type AsSeen, asOwner, type Done, doneTo, nameOf, whyNot } from './as-owner.js'

/** An open question of any lifecycle. */
export interface ListedQuestion extends OpenQuestion {
  readonly lifecycle: string
}

/**
 * Open questions. `now` is the server's time, which their deadlines are judged by. `more` has the lifecycles with more questions than are
 * listed.
 */
export interface ListedQuestions {
  readonly questions: readonly ListedQuestion[]
  readonly more: readonly string[]
  readonly now: Date
}

/** The maximum number of questions that are listed per lifecycle. */
export const MOST_QUESTIONS = 1_000

/**
 * The open questions, oldest first: at most 1,000 of a lifecycle.
 * @example await listQuestions(system) // { questions: [{ lifecycle: 'order', _id: 'order-4711', question: 'Ship it?', ... }], now }
 * @param which of one lifecycle; `to`: addressed to this person or group, or to no one in particular. Default: all
 * @throws UsageError for an unknown lifecycle
 */
export async function listQuestions(
  system: System,
  { lifecycle, to }: { readonly lifecycle?: string | undefined; readonly to?: string | undefined } = {},
): Promise<ListedQuestions> {
  const models = lifecycle === undefined ? system.models : [modelOf(system, lifecycle)]
  const registered = await readLockTimeouts(
    system.db,
    models.map(({ name }) => name),
  )
  // If no lifecycle is registered there are no questions, so nothing is judged by this process's own clock.
  const now = [...registered.values()][0]?.now ?? systemClock.now()
  const all = await Promise.all(
    models.map(async ({ name }) => {
      const which = { limit: MOST_QUESTIONS + 1, to }
      const found = await asOwner(system, name, (owner) => owner.questions(which)).catch((error: unknown) => {
        if (error instanceof MissingIndex) return [] // no replica has ever run it
        throw error
      })
      const listed = found.map((question): ListedQuestion => ({ lifecycle: name, ...question }))
      return { name, listed: listed.slice(0, MOST_QUESTIONS), hasMore: found.length > MOST_QUESTIONS }
    }),
  )
  const questions = all.flatMap(({ listed }) => listed).sort((a, b) => a.askedAt.getTime() - b.askedAt.getTime())
  return { questions, more: all.filter(({ hasMore }) => hasMore).map(({ name }) => name), now }
}

/** An answer that was stored. */
export interface AnswerGiven extends Done {
  readonly question: string
  readonly option: string
  readonly by: string
  readonly reason: string | null
}

export interface AnswerRequest extends AsSeen {
  /** One of the question's options; any text if it has no options. */
  readonly option: string
  /** The person who answers, for its history. */
  readonly by: string
  /** The reason. Default: none is given. */
  readonly reason?: string | undefined
  /** The `id` of the question. Default: the question that the document asks now. */
  readonly question?: string | undefined
}

/**
 * Answers the question that a document asks.
 * @example await answerQuestion(system, { id: 'order-4711' }, { option: 'yes', by: 'ana' }) // { ..., question: 'Ship it?', option: 'yes' }
 * @throws NotFound; UsageError, also for a text that is too long; Refused, with the expected values in its message
 */
export async function answerQuestion(system: System, ref: DocumentRef, request: AnswerRequest): Promise<AnswerGiven> {
  const found = await documentMeant(system, ref)
  const { lifecycle, document } = found
  const { seen, ...answer } = request
  const where = await requireSeen(system, found, seen)
  const act = (owner: OwnerClient) => owner.answer(document['_id'], { ...answer, audit: system.audit })
  const result = await asOwner(system, lifecycle, act, where)
  const { option, by, reason = null } = answer
  const { kind } = result
  if (kind === 'answered') return { ...doneTo(found), question: result.question, option, by, reason }
  await requireStillSeen(system, found, seen)
  if (kind === 'notFound' || kind === 'held' || kind === 'parked') throw whyNot(system, kind, found, 'answered')
  const [why, advice] = whyRefused(result, request)
  const id: unknown = document['_id']
  throw new Refused(`${nameOf(doneTo(found))} can't be answered: ${why}`, { reason: kind, lifecycle, id }, advice)
}

type NotTaken = Extract<Answered, { kind: 'notAsking' | 'alreadyAnswered' | 'timedOut' | 'notAnOption' }>

function whyRefused(
  result: NotTaken,
  { option, question: meant }: AnswerRequest,
): readonly [problem: string, advice: string] {
  switch (result.kind) {
    case 'notAsking':
      return [`it asks nothing${meant === undefined ? '' : ', or something else by'} now`, 'see: phaselock questions']
    case 'alreadyAnswered':
      return [`${result.by} has answered '${result.option}' at ${result.at.toISOString()}`, 'the first answer counts']
    case 'timedOut':
      return [`the time of its question was over at ${result.deadline.toISOString()}`, 'see: phaselock show']
    case 'notAnOption':
      return [`expected one of ${result.options.join(', ')}, got '${option}'`, 'nothing was stored']
  }
}
