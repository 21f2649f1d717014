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
  Req,
} from '@nestjs/common'
import { InvalidOptions, Unavailable } from 'phaselock'
import { BadEmbeddings, EmbeddingsRefused, EmbeddingTimeout } from '../embeddings/index.js'
import { type Check, checkOptions } from '../options.js'
import { type Found, NoSuchRepository, OtherModel, Repositories } from '../sync/index.js'
import { VectorStoreRefused } from '../vectors/index.js'
import { repositoryAnswer, syncAnswer } from './answers.js'

/** The common part of Express' and Fastify's requests; yours has more. */
export interface RepositoriesHttpRequest {
  /** Header names in lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
}

/** The use that a request wants to make of repositories. */
export interface RepositoriesHttpUse {
  readonly action: 'list' | 'show' | 'sync' | 'search'
  /** The repository; undefined: all of them. */
  readonly repository: string | undefined
}

/** The users of repositories over HTTP. */
export interface RepositoriesHttpSources {
  /**
   * Returns the sender of a request if it may do this; undefined: 401. A sync is recorded with this name. A search returns the text of files, so
   * whoever may search can read them.
   */
  readonly by: (
    request: RepositoriesHttpRequest,
    use: RepositoriesHttpUse,
  ) => string | undefined | Promise<string | undefined>
}

const REPOSITORIES_SOURCES = Symbol.for('phaselock:repositories-sources')
const LONGEST_QUESTION = 8_192
const SYNCS = 10

const aText =
  (most: number): Check =>
  (value) =>
    typeof value === 'string' && value !== '' && value.length <= most ? undefined : `text of 1 to ${most} characters`
const orNone =
  (check: Check): Check =>
  (value) =>
    value === undefined ? undefined : check(value)

/** The body of a search. */
interface Search {
  readonly question: string
  readonly repository?: string
  readonly path?: string
  readonly limit?: number
}

const SEARCH = {
  question: aText(LONGEST_QUESTION),
  repository: orNone(aText(150)),
  path: orNone(aText(4_096)),
  limit: orNone((value) =>
    Number.isSafeInteger(value) && Number(value) >= 1 && Number(value) <= 100
      ? undefined
      : 'a whole number from 1 to 100',
  ),
}

@Controller('repositories')
class RepositoriesController {
  constructor(
    @Inject(Repositories) private readonly repositories: Repositories,
    @Inject(REPOSITORIES_SOURCES) private readonly sources: RepositoriesHttpSources,
  ) {}

  /** The repositories, each with its condition in a sentence and its latest sync. */
  @Get()
  @Header('Cache-Control', 'no-store')
  async list(@Req() request: RepositoriesHttpRequest): Promise<object> {
    await this.senderOf(request, 'list')
    return await overHttp(async () => ({ repositories: (await this.repositories.list()).map(repositoryAnswer) }))
  }

  /** A repository with its latest syncs. */
  @Get(':id')
  @Header('Cache-Control', 'no-store')
  async show(@Req() request: RepositoriesHttpRequest, @Param('id') id: string): Promise<object> {
    await this.senderOf(request, 'show', id)
    return await overHttp(async () => {
      const shown = repositoryAnswer(await this.repositories.show(id))
      return { ...shown, syncs: (await this.repositories.syncs(id, { limit: SYNCS })).map(syncAnswer) }
    })
  }

  /** Asks for a sync: `{ run }`. It is Skipped while one is open. */
  @Post(':id/sync')
  @HttpCode(202)
  async sync(@Req() request: RepositoriesHttpRequest, @Param('id') id: string): Promise<object> {
    requireJson(request)
    const by = await this.senderOf(request, 'sync', id)
    return await overHttp(async () => ({ run: await this.repositories.sync(id, { by }) }))
  }

  /** Searches: `{ question, repository, path, limit }`. */
  @Post('search')
  @HttpCode(200)
  @Header('Cache-Control', 'no-store')
  async search(
    @Req() request: RepositoriesHttpRequest,
    @Body() body: unknown,
  ): Promise<{ readonly found: readonly Found[] }> {
    requireJson(request)
    return await overHttp(async () => {
      const { question, ...options } = checkOptions('search', SEARCH, body as Search)
      await this.senderOf(request, 'search', options.repository)
      return { found: await this.repositories.search(question, options) }
    })
  }

  private async senderOf(
    request: RepositoriesHttpRequest,
    action: RepositoriesHttpUse['action'],
    repository?: string,
  ): Promise<string> {
    const by = await this.sources.by(request, { action, repository })
    if (typeof by === 'string' && by !== '') return by
    throw problem(401, 'unknownSender', 'expected a sender who may do this; send the token that you were given')
  }
}

/**
 * Repositories for other services, in an app with RepositoriesModule and an HTTP platform: `GET /repositories`, `GET /repositories/<id>`,
 * `POST /repositories/<id>/sync` and `POST /repositories/search`.
 * @example RepositoriesHttpModule.forRoot({ by: ({ headers }) => services.nameOf(headers.authorization) })
 */
@Module({})
// biome-ignore lint/complexity/noStaticOnlyClass: the shape of a dynamic module
export class RepositoriesHttpModule {
  /** @throws InvalidOptions */
  static forRoot(sources: RepositoriesHttpSources): DynamicModule {
    const by: Check = (value) => (typeof value === 'function' ? undefined : 'a function that returns the sender')
    checkOptions('RepositoriesHttpModule.forRoot', { by }, sources)
    return {
      module: RepositoriesHttpModule,
      controllers: [RepositoriesController],
      providers: [{ provide: REPOSITORIES_SOURCES, useValue: sources }],
    }
  }
}

/** Requires JSON, because a page of another site can send a form in the name of a logged-in user, but not JSON. */
function requireJson({ headers }: RepositoriesHttpRequest): void {
  const type = headers['content-type']
  if (!/^application\/json\b/i.test(String(type)))
    throw problem(415, 'invalidRequest', `expected the content type application/json, got ${String(type)}`)
}

const OF_OTHERS = [EmbeddingsRefused, BadEmbeddings, VectorStoreRefused]

const problem = (statusCode: number, error: string, message: string) =>
  new HttpException({ statusCode, error, message }, statusCode)

async function overHttp<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof NoSuchRepository) throw problem(404, 'noRepository', error.message)
    if (error instanceof InvalidOptions) throw problem(400, 'invalidRequest', error.problems.join('; '))
    if (error instanceof OtherModel) throw problem(409, 'otherModel', error.message)
    if (error instanceof Unavailable || error instanceof EmbeddingTimeout)
      throw problem(503, 'unavailable', error.message)
    if (OF_OTHERS.some((kind) => error instanceof kind)) throw problem(502, 'refused', (error as Error).message)
    throw error
  }
}
