import {
  Body,
  Controller,
  type DynamicModule,
  Get,
  Header,
  HttpCode,
  HttpException,
  Inject,
  Module,
  Param,
  Post,
  type Provider,
  Query,
  Req,
} from '@nestjs/common'
import { BSON, type Db } from 'mongodb'
import { isOutage } from '../database/index.js'
import {
  answerQuestion,
  listQuestions,
  NotFound,
  OperationError,
  Refused,
  type System,
  UsageError,
} from '../operations/index.js'
import { checkOptions, DOORBELL_MODES, type DoorbellMode, InvalidOptions, ownReads, t } from '../options/index.js'
import type { AuditOptions, LifecycleModel } from '../phases/index.js'
import { type AsyncOptions, optionsFrom } from './locks/options.js'
import type { AppDb } from './options.js'

/** The questions that are served over HTTP, and the users who may answer them. */
export interface QuestionsSources {
  /** The database of the documents. */
  readonly db: AppDb
  /** The lifecycles that ask: definitions, or with their handlers. */
  readonly lifecycles: readonly { readonly model: LifecycleModel }[]
  /**
   * Returns the sender of a request: the name that is kept with an answer, at most 200 characters. Undefined: the sender may not see or answer
   * any question (401). Check a token here, or use a value that a guard of your app has put into the request. `request` is your platform's
   * (Express', Fastify's).
   */
  readonly by: (request: QuestionsHttpRequest) => string | undefined | Promise<string | undefined>
  /** The retention of an answer's entry in the audit. Default 90d. */
  readonly auditFor?: AuditOptions['keepFor']
  /** `off`: a replica finds the answer with its next tick. Default: the replica is notified. */
  readonly doorbell?: DoorbellMode | undefined
}

/** The common part of Express' and Fastify's requests; yours has more. */
export interface QuestionsHttpRequest {
  /** Header names in lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
}

/** The options of `QuestionsHttpModule.forRootAsync`. */
export type QuestionsHttpAsyncOptions = AsyncOptions<QuestionsSources>

const GIVEN_SOURCES = Symbol.for('phaselock:questions-sources-given')
const QUESTIONS_SOURCES = Symbol.for('phaselock:questions-sources')

const sources = t.object({
  db: t.having(['collection', 'command'], 'a Db of the mongodb driver'),
  lifecycles: t.list(
    t.aLifecycle('a lifecycle (a definition, or what its handle({ ... }) has returned)'),
    t.expecting('a list of lifecycles'),
  ),
  by: t.aFunction('a function that says who sends a request'),
  auditFor: t.optional(t.durationText('1h', '3650d')),
  doorbell: t.optional(t.oneOf(DOORBELL_MODES)),
})

const answerBody = t.object({
  option: t.name,
  reason: t.optional(t.text),
  question: t.optional(t.name),
})
const FORMER = { renamed: { comment: 'reason' } } as const
const listQuery = t.object({ lifecycle: t.optional(t.name), to: t.optional(t.name) })

/** The inbox of open questions, and answers to them. */
@Controller('questions')
class QuestionsController {
  constructor(@Inject(QUESTIONS_SOURCES) private readonly sources: QuestionsSources) {}

  /**
   * Lists the open questions, oldest first. `?lifecycle=` selects those of one lifecycle, `?to=` those addressed to this
   * person or to no one in particular.
   */
  @Get()
  @Header('Cache-Control', 'no-store')
  async list(@Req() request: QuestionsHttpRequest, @Query() query: unknown): Promise<object> {
    const by = await this.by(request)
    return await overHttp(async () => {
      const { questions, more, now } = await listQuestions(
        this.system(by),
        checkOptions('GET /questions', listQuery, query),
      )
      return shown({ now, questions, more })
    })
  }

  /** Answers a document's question: `{ option, reason, question }`. */
  @Post(':lifecycle/:id')
  @HttpCode(200)
  async answer(
    @Req() request: QuestionsHttpRequest,
    @Param('lifecycle') lifecycle: string,
    @Param('id') id: string,
    @Body() body: unknown,
  ): Promise<object> {
    const by = await this.by(request)
    requireJson(request)
    return await overHttp(async () => {
      const given = checkOptions('POST /questions', answerBody, body ?? {}, FORMER)
      return shown(await answerQuestion(this.system(by), { lifecycle, id }, { ...given, by }))
    })
  }

  private async by(request: QuestionsHttpRequest): Promise<string> {
    const by = await this.sources.by(request)
    if (typeof by === 'string' && by !== '') return by
    throw problem(401, 'unknownSender', 'expected a sender who is known: log in, or send the token that you were given')
  }

  private system(by: string): System {
    const { db, lifecycles, auditFor, doorbell } = this.sources
    const models = lifecycles.map(({ model }) => model)
    return { db: ownReads(db as Db), models, doorbell, audit: { by, keepFor: auditFor } }
  }
}

/** The inbox of questions, `GET /questions`, and answers, `POST /questions/<lifecycle>/<id>`, for a Nest app with an HTTP platform. */
@Module({})
// biome-ignore lint/complexity/noStaticOnlyClass: the shape of a dynamic module
export class QuestionsHttpModule {
  /** @throws InvalidOptions */
  static forRoot(sources: QuestionsSources): DynamicModule {
    return moduleOf({ provide: GIVEN_SOURCES, useValue: checkSources(sources) })
  }

  /** The same with a database that another module has opened. Errors at start: InvalidOptions. */
  static forRootAsync(options: QuestionsHttpAsyncOptions): DynamicModule {
    const { provider, imports } = optionsFrom('QuestionsHttpModule.forRootAsync', GIVEN_SOURCES, options)
    return moduleOf(provider, imports)
  }
}

function moduleOf(given: Provider, imports: DynamicModule['imports'] = []): DynamicModule {
  const checked = { provide: QUESTIONS_SOURCES, inject: [GIVEN_SOURCES], useFactory: checkSources }
  return { module: QuestionsHttpModule, imports, controllers: [QuestionsController], providers: [given, checked] }
}

function checkSources(given: QuestionsSources): QuestionsSources {
  checkOptions('QuestionsHttpModule', sources, given)
  return given
}

/** Requires JSON, because a page of another site can send a form in the name of a logged-in user, but not JSON. */
function requireJson({ headers }: QuestionsHttpRequest): void {
  const type = headers['content-type']
  if (!/^application\/json\b/i.test(String(type)))
    throw problem(415, 'invalidRequest', `expected the content type application/json, got ${String(type)}`)
}

/** Formats the answer as `--json` of the commands prints it, in Extended JSON. */
const shown = (value: object): object => BSON.EJSON.serialize(value, { relaxed: true })

const problem = (statusCode: number, error: string, message: string) =>
  new HttpException({ statusCode, error, message }, statusCode)

/** Turns a refusal into an answer that gives the reason, and an outage of the database into a 503; other errors stay the app's. */
async function overHttp<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (isOutage(error))
      throw problem(
        503,
        'databaseUnavailable',
        "the database doesn't answer; send it again: an answer that was stored counts once",
      )
    if (error instanceof InvalidOptions) throw problem(400, 'invalidRequest', error.problems.join('; '))
    if (!(error instanceof OperationError)) throw error
    const reason = error.obstacle?.reason
    if (error instanceof NotFound) throw problem(404, reason ?? 'notFound', error.problem)
    if (error instanceof Refused) throw problem(409, reason ?? 'refused', error.problem)
    if (error instanceof UsageError)
      // The advice is for the command line, except for the spellings of an `_id`.
      throw problem(
        reason === 'unknownLifecycle' ? 404 : 400,
        reason ?? 'invalidRequest',
        reason === 'ambiguousId' ? error.message : error.problem,
      )
    throw error
  }
}
