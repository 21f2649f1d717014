import { answerIn, type DeadlineHold, questionIn, type StoredQuestion, underHold } from '../../../lock/index.js'
import { withFormerFields } from '../../../options/index.js'
import type { StepAnswer } from '../../step/step.js'

/** The last question of the document's step, and its answer; `answer` undefined: it is still open. */
export interface Asked {
  readonly question: StoredQuestion
  readonly answer: StepAnswer | undefined
}

/** An answer whose former field is refused. */
export const refusingComment = (answer: StepAnswer): StepAnswer =>
  withFormerFields('step.answer', answer, { comment: 'reason' })

/**
 * Reads the question from a document's progress.
 * @param now the server's time
 * @param hold set while a step of the server's clock isn't confirmed: no question ends by that
 */
export function askedIn(progress: unknown, now: () => Date, hold: () => DeadlineHold | undefined): Asked | undefined {
  const question = questionIn(progress)
  if (!question) return undefined
  const { question: text, deadline, onTimeout } = question
  const stored = answerIn(progress, question)
  if (stored) {
    const { option, by, at, comment } = stored
    const answer = { question: text, option, by, at, reason: comment ?? undefined, timedOut: false }
    return { question, answer: refusingComment(answer) }
  }
  if (!deadline) return { question, answer: undefined }
  if (underHold(deadline, hold()) > now()) return { question, answer: undefined }
  const option = onTimeout ?? undefined
  return {
    question,
    answer: { question: text, option, by: 'timeout', at: deadline, reason: undefined, timedOut: true },
  }
}
