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
  Query,
  Req,
} from '@nestjs/common'
import { InvalidOptions } from 'phaselock'
import { LockLost, LockProviderUnavailable } from 'phaselock/locks'
import { NotFound } from 'phaselock/operations'
import { KeyUnusable, type Login, LoginFailed, type Logins } from '../logins/index.js'
import { aFunction, checked, having, required } from '../options.js'
import { InvalidKey, StillLoading, StoreUnavailable } from '../store/index.js'

/** The common part of Express' and Fastify's requests; yours has more. */
export interface LoginsHttpRequest {
  /** Header names in lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
}

/** The logins that other services get over HTTP, and the services that may. */
export interface LoginsHttpSources {
  readonly logins: Logins
  /**
   * Returns the service that sends a request if it may have logins of this profile and user; undefined: 401. Tokens are secrets: serve them over TLS, on a
   * port that only your services reach.
   */
  readonly by: (
    request: LoginsHttpRequest,
    profile: string,
    user: string | undefined,
  ) => string | undefined | Promise<string | undefined>
}

const LOGINS_SOURCES = Symbol.for('phaselock:logins-sources')
const LONGEST = 2_048

@Controller('logins')
class LoginsController {
  constructor(@Inject(LOGINS_SOURCES) private readonly sources: LoginsHttpSources) {}

  /** The login of a profile, and of a user with `?user=`: `{ profile, user, token }`. */
  @Get(':profile')
  @Header('Cache-Control', 'no-store')
  async context(
    @Req() request: LoginsHttpRequest,
    @Param('profile') profile: string,
    @Query('user') user: unknown,
  ): Promise<object> {
    const whose = userFrom(user)
    await this.allow(request, profile, whose)
    return await overHttp(() => this.sources.logins.context(profile, whose))
  }

  /** A new login in place of a token that was refused: `{ replacing, user }`. */
  @Post(':profile/refresh')
  @HttpCode(200)
  @Header('Cache-Control', 'no-store')
  async refresh(
    @Req() request: LoginsHttpRequest,
    @Param('profile') profile: string,
    @Body() body: unknown,
  ): Promise<object> {
    requireJson(request)
    const { replacing, user } = (typeof body === 'object' && body !== null ? body : {}) as Record<string, unknown>
    const whose = userFrom(user)
    await this.allow(request, profile, whose)
    if (typeof replacing !== 'string' || replacing === '')
      throw problem(
        400,
        'invalidRequest',
        'replacing: expected the token that was refused, as text of a JSON body, got none',
      )
    return await overHttp(() => this.sources.logins.refresh(profile, whose, { replacing }))
  }

  private async allow(request: LoginsHttpRequest, profile: string, user: string | undefined): Promise<void> {
    const by = await this.sources.by(request, profile, user)
    if (typeof by === 'string' && by !== '') return
    throw problem(
      401,
      'unknownSender',
      'expected a service that may have this login; send the token that you were given',
    )
  }
}

/**
 * Logins for other services: `GET /logins/<profile>?user=` and `POST /logins/<profile>/refresh`, for a Nest app with an HTTP platform.
 * @example LoginsHttpModule.forRoot({ logins, by: ({ headers }) => services.nameOf(headers.authorization) })
 */
@Module({})
// biome-ignore lint/complexity/noStaticOnlyClass: the shape of a dynamic module
export class LoginsHttpModule {
  /** @throws InvalidOptions */
  static forRoot(sources: LoginsHttpSources): DynamicModule {
    const toServe = {
      logins: required(having<Logins>(['context', 'refresh'], 'a Logins')),
      by: required(aFunction<LoginsHttpSources['by']>()),
    }
    checked('LoginsHttpModule.forRoot', toServe, sources)
    return {
      module: LoginsHttpModule,
      controllers: [LoginsController],
      providers: [{ provide: LOGINS_SOURCES, useValue: sources }],
    }
  }
}

function userFrom(user: unknown): string | undefined {
  if (user === undefined || user === null) return undefined
  if (typeof user === 'string' && user !== '' && user.length <= LONGEST) return user
  throw problem(400, 'invalidRequest', `user: expected text of 1 to ${LONGEST} characters, once`)
}

/** Requires JSON, because a page of another site can send a form in the name of a logged-in user, but not JSON. */
function requireJson({ headers }: LoginsHttpRequest): void {
  const type = headers['content-type']
  if (!/^application\/json\b/i.test(String(type)))
    throw problem(415, 'invalidRequest', `expected the content type application/json, got ${String(type)}`)
}

/** Errors that are over when a server or a key is back. */
const UNAVAILABLE = [StillLoading, StoreUnavailable, LockProviderUnavailable, LockLost, KeyUnusable]

const problem = (statusCode: number, error: string, message: string) =>
  new HttpException({ statusCode, error, message }, statusCode)

async function overHttp(work: () => Promise<Login>): Promise<object> {
  try {
    const { profile, user, token } = await work()
    return { profile, ...(user !== undefined && { user }), token }
  } catch (error) {
    if (error instanceof NotFound) throw problem(404, 'noProfile', error.problem)
    if (error instanceof InvalidOptions) throw problem(400, 'invalidRequest', error.problems.join('; '))
    if (error instanceof LoginFailed) throw problem(502, 'loginFailed', error.message)
    // Users that can't be a part of a key: too long, or halves of surrogate pairs.
    if (error instanceof InvalidKey || error instanceof URIError)
      throw problem(400, 'invalidRequest', `user: expected text that a key can hold, got: ${error.message}`)
    if (UNAVAILABLE.some((kind) => error instanceof kind)) throw problem(503, 'unavailable', (error as Error).message)
    throw error
  }
}
