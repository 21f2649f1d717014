import type { Settings } from '../../../config/index.js'
import { answerOverHttp, knownSender, questionsOverHttp } from '../../../operations/index.js'
import type { Workspace } from '../../workspace.js'
import { AnswerTokens } from './answer-tokens.js'
import type { HttpRequest, HttpRoutes } from './server.js'

/** `GET /questions` and `POST /questions/<lifecycle>/<id>`, for those whom the file of tokens names. @throws CliError for a file that can't be used */
export async function questionRoutes(
  { connection, lifecycles }: Pick<Workspace, 'connection' | 'lifecycles'>,
  { answerTokens, auditFor, doorbell }: Pick<Settings, 'answerTokens' | 'auditFor' | 'doorbell'>,
): Promise<HttpRoutes> {
  if (answerTokens === undefined) return {}
  const tokens = await AnswerTokens.of(answerTokens)
  const models = lifecycles.map(({ model }) => model)
  const systemOf = async ({ headers }: HttpRequest) => {
    const by = knownSender(await tokens.nameOf(headers.authorization ?? ''))
    return { db: connection.db, models, doorbell, audit: { by, keepFor: `${auditFor}ms` as const } }
  }
  return {
    'GET /questions': async (request) => ({
      status: 200,
      body: await questionsOverHttp(await systemOf(request), Object.fromEntries(request.query)),
    }),
    'POST /questions/:lifecycle/:id': async (request) => {
      const [lifecycle = '', id = ''] = request.parameters
      const system = await systemOf(request)
      const answer = { type: request.headers['content-type'], body: await request.json() }
      return { status: 200, body: await answerOverHttp(system, { lifecycle, id }, answer) }
    },
  }
}
