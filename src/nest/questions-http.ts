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
import type { Db } from 'mongodb'
import { answerOverHttp, httpProblemOf, knownSender, questionsOverHttp, type System } from '../operations/index.js'
import { checkOptions, DOORBELL_MODES, type DoorbellMode, ownReads, t } from '../options/index.js'
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
    return await overHttp(async () => questionsOverHttp(await this.systemOf(request), query))
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
    const type = request.headers['content-type'] as string | undefined
    return await overHttp(async () => answerOverHttp(await this.systemOf(request), { lifecycle, id }, { type, body }))
  }

  private async systemOf(request: QuestionsHttpRequest) {
    const by = knownSender(await this.sources.by(request))
    const { db, lifecycles, auditFor, doorbell } = this.sources
    const models = lifecycles.map(({ model }) => model)
    return { db: ownReads(db as Db), models, doorbell, audit: { by, keepFor: auditFor } } satisfies System
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

/** Turns a refusal, and an outage of the database, into an answer; other errors stay the app's. */
async function overHttp<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const problem = httpProblemOf(error)
    throw problem ? new HttpException(problem, problem.statusCode) : error
  }
}
