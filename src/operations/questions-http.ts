import { BSON, type Document } from 'mongodb'
import { isOutage } from '../database/index.js'
import { checkOptions, InvalidOptions, t } from '../options/index.js'
import { answerQuestion, listQuestions } from './act/questions.js'
import { NotFound, OperationError, Refused, UsageError } from './system/errors.js'
import type { System } from './system/system.js'

/** A refusal in the form in which it goes over HTTP. */
export interface HttpProblem {
  readonly statusCode: number
  /** A stable word for programs: `notAsking`. */
  readonly error: string
  readonly message: string
}

/** A request that is refused before it reaches the database. */
export class RefusedRequest extends Error {
  override readonly name = 'RefusedRequest'
  constructor(readonly problem: HttpProblem) {
    super(problem.message)
  }
}

const answerBody = t.object({
  option: t.name,
  reason: t.optional(t.text),
  question: t.optional(t.name),
})
const FORMER = { renamed: { comment: 'reason' } } as const
const listQuery = t.object({ lifecycle: t.optional(t.name), to: t.optional(t.name) })

/** Lists the open questions for `GET /questions`. @throws what {@link httpProblemOf} turns into an answer, and the database's own errors */
export async function questionsOverHttp(system: System, query: unknown): Promise<Document> {
  const { questions, more, now } = await listQuestions(system, checkOptions('GET /questions', listQuery, query))
  return shown({ now, questions, more })
}

/**
 * Answers a question for `POST /questions/<lifecycle>/<id>`. The body has to be JSON, because a page of another site can send a form in the name of
 * a logged-in user, but not JSON.
 * @throws as {@link questionsOverHttp}
 */
export async function answerOverHttp(
  system: System & { readonly audit: { readonly by: string } },
  document: { readonly lifecycle: string; readonly id: string },
  { type, body }: { readonly type: string | undefined; readonly body: unknown },
): Promise<Document> {
  if (!/^application\/json\b/i.test(String(type))) {
    const message = `expected the content type application/json, got ${String(type)}`
    throw new RefusedRequest({ statusCode: 415, error: 'invalidRequest', message })
  }
  const given = checkOptions('POST /questions', answerBody, body ?? {}, FORMER)
  return shown(await answerQuestion(system, document, { ...given, by: system.audit.by }))
}

/** Requires a known sender. @throws RefusedRequest (401) */
export function knownSender(by: unknown): string {
  if (typeof by === 'string' && by !== '') return by
  const message = 'expected a sender who is known: log in, or send the token that you were given'
  throw new RefusedRequest({ statusCode: 401, error: 'unknownSender', message })
}

/** Formats an answer as `--json` of the commands prints it, in Extended JSON. */
const shown = (value: object): Document => BSON.EJSON.serialize(value, { relaxed: true })

/** The answer to a request that was refused, or that met an outage of the database; undefined for other errors, which are faults. */
export function httpProblemOf(error: unknown): HttpProblem | undefined {
  const problem = (statusCode: number, error: string, message: string): HttpProblem => ({ statusCode, error, message })
  if (error instanceof RefusedRequest) return error.problem
  if (isOutage(error))
    return problem(
      503,
      'databaseUnavailable',
      "the database doesn't answer; send it again: an answer that was stored counts once",
    )
  if (error instanceof InvalidOptions) return problem(400, 'invalidRequest', error.problems.join('; '))
  if (!(error instanceof OperationError)) return undefined
  const reason = error.obstacle?.reason
  if (error instanceof NotFound) return problem(404, reason ?? 'notFound', error.problem)
  if (error instanceof Refused) return problem(409, reason ?? 'refused', error.problem)
  if (!(error instanceof UsageError)) return undefined
  // The advice is for the command line, except for the spellings of an `_id`.
  return problem(
    reason === 'unknownLifecycle' ? 404 : 400,
    reason ?? 'invalidRequest',
    reason === 'ambiguousId' ? error.message : error.problem,
  )
}
