import { type IncomingMessage, request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { Credentials, type KubeconfigSource, loadClient } from './credentials.js'

/** A request as the API server sees it. */
export interface HttpRequest {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** The path with its leading slash, without a query. */
  readonly path: string
  readonly query?: Readonly<Record<string, string | number | undefined>> | undefined
  readonly body?: unknown
  readonly contentType?: string | undefined
  /** The whole answer, or the headers of a stream, must arrive within this many milliseconds. */
  readonly timeoutMs: number
  readonly signal?: AbortSignal | undefined
}

export interface HttpAnswer {
  readonly status: number
  /** The value of `Retry-After`, if the server sent one. */
  readonly retryAfterMs: number | undefined
  readonly text: string
}

/** The request could not be sent, or no answer arrived in time: it is unknown whether it was executed. */
export class NoReply extends Error {
  override readonly name = 'NoReply'
}

/** HTTP to one API server: every request ends by its time limit. */
export class Transport {
  private readonly credentials: Credentials

  constructor(source: KubeconfigSource) {
    this.credentials = new Credentials(source)
  }

  /**
   * @throws NoReply
   * @throws the signal's reason once it has aborted
   */
  async send(request: HttpRequest): Promise<HttpAnswer> {
    return this.exchange(request, answerOf)
  }

  /**
   * Opens a stream (a watch); the time limit applies to opening it. The caller reads it to its end or destroys it; `signal`
   * destroys it too. An unsuccessful answer is read and returned as such.
   * @throws NoReply
   */
  async open(request: HttpRequest): Promise<HttpAnswer | IncomingMessage> {
    const read = async (response: IncomingMessage) => (response.statusCode === 200 ? response : answerOf(response))
    return this.exchange(request, read, true)
  }

  close(): void {
    this.credentials.close()
  }

  private async exchange<T>(
    request: HttpRequest,
    read: (response: IncomingMessage) => Promise<T>,
    streams = false,
  ): Promise<T> {
    const { signal, timeoutMs } = request
    // Loading takes seconds on a busy machine, which doesn't mean a silent server. A failure to load is reported below.
    await loadClient().catch(() => undefined)
    signal?.throwIfAborted()
    const over = new AbortController()
    const timer = setTimeout(() => over.abort(new NoReply(`no answer within ${timeoutMs} ms`)), timeoutMs)
    const stop = () => over.abort(signal?.reason)
    signal?.addEventListener('abort', stop, { once: true })
    let opened = false
    try {
      const value = await endedBy(over.signal, this.responseTo(request, over.signal).then(read))
      opened = true
      return value
    } catch (error) {
      if (signal?.aborted) throw signal.reason
      if (over.signal.aborted) throw over.signal.reason
      throw new NoReply(messageOf(error), { cause: error })
    } finally {
      clearTimeout(timer)
      // A stream goes on after this, and ends with the caller's signal.
      if (!(streams && opened)) signal?.removeEventListener('abort', stop)
    }
  }

  private async responseTo(request: HttpRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const { server, options } = await this.credentials.access()
    const body = request.body === undefined ? undefined : JSON.stringify(request.body)
    const path = `${server.pathname.replace(/\/$/, '')}${request.path}${queryOf(request)}`
    const headers = {
      ...options.headers,
      accept: 'application/json',
      'user-agent': 'phaselock',
      ...(body !== undefined && {
        'content-type': request.contentType ?? 'application/json',
        'content-length': Buffer.byteLength(body),
      }),
    }
    const send = server.protocol === 'http:' ? requestHttp : requestHttps
    return new Promise((resolve, reject) => {
      const { port, hostname } = server
      const host = hostname.replace(/^\[|\]$/g, '')
      const outgoing = send({ ...options, host, port, method: request.method, path, headers, signal }, resolve)
      outgoing.on('error', reject)
      outgoing.end(body)
    })
  }
}

/** Returns a promise that ends with the signal even if the work itself doesn't (a credentials plugin that hangs). */
export function endedBy<T>(signal: AbortSignal | undefined, work: Promise<T>): Promise<T> {
  if (!signal) return work
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason)
    if (signal.aborted) stop()
    signal.addEventListener('abort', stop, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop))
  })
}

function queryOf({ query = {} }: HttpRequest): string {
  const parameters = new URLSearchParams()
  for (const [key, value] of Object.entries(query)) if (value !== undefined) parameters.set(key, String(value))
  return parameters.size === 0 ? '' : `?${parameters}`
}

async function answerOf(response: IncomingMessage): Promise<HttpAnswer> {
  const chunks: Buffer[] = []
  for await (const chunk of response) chunks.push(chunk as Buffer)
  const seconds = Number(response.headers['retry-after'])
  const retryAfterMs = Number.isFinite(seconds) && seconds > 0 ? seconds * 1_000 : undefined
  return { status: response.statusCode ?? 0, retryAfterMs, text: Buffer.concat(chunks).toString('utf8') }
}

/** A refused connection to a name with several addresses is an AggregateError, whose own message is empty. */
function messageOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(messageOf).join('; ')
  return error instanceof Error ? error.message : String(error)
}
