import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Settings } from '../../../config/index.js'
import { httpProblemOf } from '../../../operations/index.js'
import type { Logger } from '../../../phases/index.js'
import { CliError, EXIT } from '../../errors.js'

/** The most bytes of a body: no request of ours needs more. */
const MOST_BYTES = 100 * 1024
/** The time that a client may take for a whole request. */
const REQUEST_MS = 30_000
/** More than probes, scrapers and people need; others have to wait. */
const MOST_CONNECTIONS = 1_000

/** A request that has met its route. */
export interface HttpRequest {
  readonly headers: IncomingHttpHeaders
  readonly query: URLSearchParams
  /** The parts of the path that stand at `:name` in its route, decoded. */
  readonly parameters: readonly string[]
  /** Reads the body. @throws HttpRefusal (400, 413) */
  json(): Promise<unknown>
}

export interface HttpAnswer {
  readonly status: number
  /** The content: an object goes as JSON. */
  readonly body: object | string
  /** The content type of a text. */
  readonly type?: string
}

/** By method and path, such as `POST /questions/:lifecycle/:id`: functions that answer. */
export type HttpRoutes = Readonly<Record<string, (request: HttpRequest) => Promise<HttpAnswer>>>

/** A listening web server. */
export interface HttpServer {
  /** `http://host:port` */
  readonly http: string
  /** Ends it, and the connections that no request is using. */
  close(): Promise<void>
}

class HttpRefusal extends Error {
  override readonly name = 'HttpRefusal'
  constructor(
    readonly status: number,
    readonly error: string,
    message: string,
    readonly headers: Record<string, string> = {},
  ) {
    super(message)
  }
}

/**
 * Serves routes by Node's own web server: no other package is needed. Each answer is JSON or a text, and is never cached. Requests are refused with
 * `{ statusCode, error, message }`.
 * @throws CliError when the port is taken
 */
export async function serveRoutes(
  routes: HttpRoutes,
  { http: port = 0, httpHost }: Pick<Settings, 'http' | 'httpHost'>,
  logger: Logger,
): Promise<HttpServer> {
  const table = Object.entries(routes).map(([route, answer]) => {
    const [method = '', path = ''] = route.split(' ')
    return { method, parts: path.split('/'), answer }
  })
  const server = createServer({ requestTimeout: REQUEST_MS }, (request, response) => {
    answerTo(request, table).then(
      (answer) => send(request, response, answer),
      (error: unknown) => {
        // A client that went away in the middle of its body is no fault.
        if (!request.errored) send(request, response, refusal(error, logger))
      },
    )
  })
  server.maxConnections = MOST_CONNECTIONS
  await listening(server, port, httpHost)
  const { address, port: taken } = server.address() as AddressInfo
  const host = ['0.0.0.0', '::'].includes(address) ? 'localhost' : address
  return {
    http: `http://${host.includes(':') ? `[${host}]` : host}:${taken}`,
    async close() {
      const closed = new Promise((resolve) => server.close(resolve))
      server.closeIdleConnections()
      await closed
    },
  }
}

type Table = readonly { method: string; parts: readonly string[]; answer: HttpRoutes[string] }[]

async function answerTo(request: IncomingMessage, table: Table): Promise<HttpAnswer> {
  const { pathname, searchParams: query } = new URL(request.url ?? '/', 'http://localhost')
  const given = pathname.replace(/(?<=.)\/$/, '').split('/')
  const isAt = (parts: readonly string[]) =>
    parts.length === given.length && parts.every((part, i) => part.startsWith(':') || part === given[i])
  const there = table.filter(({ parts }) => isAt(parts))
  const method = request.method === 'HEAD' ? 'GET' : request.method
  const route = there.find((one) => one.method === method)
  if (there.length === 0) throw new HttpRefusal(404, 'notFound', `there is nothing at ${pathname}`)
  if (!route) {
    const allow = there.map((one) => (one.method === 'GET' ? 'GET, HEAD' : one.method)).join(', ')
    throw new HttpRefusal(405, 'methodNotAllowed', `expected ${allow}, got ${request.method}`, { allow })
  }
  const parameters = given.filter((_, i) => route.parts[i]!.startsWith(':')).map(decoded)
  return await route.answer({ headers: request.headers, query, parameters, json: () => jsonOf(request) })
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    throw new HttpRefusal(400, 'invalidRequest', `expected a path in percent-encoding, got '${part}'`)
  }
}

async function jsonOf(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    bytes += (chunk as Buffer).length
    // The rest is not read: the connection ends with the answer.
    if (bytes > MOST_BYTES)
      throw new HttpRefusal(413, 'tooLarge', `expected a body of at most ${MOST_BYTES} bytes, got more`, {
        connection: 'close',
      })
    chunks.push(chunk as Buffer)
  }
  if (bytes === 0) return undefined
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'))
  } catch (error) {
    throw new HttpRefusal(400, 'invalidRequest', `expected a body in JSON: ${(error as Error).message}`)
  }
}

function refusal(error: unknown, logger: Logger): HttpAnswer & { readonly headers?: Record<string, string> } {
  if (error instanceof HttpRefusal) {
    const { status, error: word, message, headers } = error
    return { status, headers, body: { statusCode: status, error: word, message } }
  }
  const problem = httpProblemOf(error)
  if (problem) return { status: problem.statusCode, body: problem }
  logger.error(`the web server could not answer: ${String(error)}`, { error })
  return { status: 500, body: { statusCode: 500, error: 'internalError', message: 'see the log of this process' } }
}

function send(
  { method }: IncomingMessage,
  response: ServerResponse,
  { status, body, type, headers = {} }: HttpAnswer & { readonly headers?: Record<string, string> },
): void {
  const isText = typeof body === 'string'
  response.writeHead(status, {
    'content-type': isText ? (type ?? 'text/plain; charset=utf-8') : 'application/json; charset=utf-8',
    'cache-control': 'no-store',
    ...headers,
  })
  response.end(method === 'HEAD' ? undefined : isText ? body : JSON.stringify(body))
}

/** @throws CliError */
function listening(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.on('error', ({ code, message }: NodeJS.ErrnoException) => {
      const reason = code === 'EADDRINUSE' ? 'a port that is in use' : message
      const problem = `expected to listen on ${host}:${port}, got ${reason}`
      const advice = 'choose another --http port (0: any free one) or --http-host'
      reject(new CliError('PortUnavailable', EXIT.failure, `${problem}; ${advice}`))
    })
    server.listen(port, host, resolve)
  })
}
