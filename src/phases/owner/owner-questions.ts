import { checkOptions, t } from '../../options/index.js'

const atMost = (most: number) =>
  t.checked(t.name, ({ length }) => length <= most, `expected at most ${most} characters`)

const answerOptions = t.object({
  option: atMost(1_000),
  by: atMost(200),
  reason: t.optional(atMost(1_000)),
  question: t.optional(t.name),
  session: t.anything<never>(),
  audit: t.anything<never>(),
})

/** The former name of an answer's reason. Answers keep it: they are stored with `comment`. */
export const FORMER_COMMENT = { renamed: { comment: 'reason' } } as const

/** @throws InvalidOptions */
export function newAnswer(options: unknown) {
  const {
    option,
    by,
    reason: comment = null,
    question,
  } = checkOptions('answer', answerOptions, options, FORMER_COMMENT)
  return { option, by, comment, question }
}

const questionsOptions = t.object({ limit: t.optional(t.whole(1, 10_000)), to: t.optional(t.name) })

/** @throws InvalidOptions */
export function readQuestionsOptions(options: unknown) {
  const { limit = 1_000, to } = checkOptions('questions', questionsOptions, options)
  return { limit, to }
}
