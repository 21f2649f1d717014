import { Unavailable } from 'phaselock'
import { type Credentials, TokenRefused, withToken } from '../credentials.js'
import { AccessDenied, RepositoryNotFound } from '../errors.js'

/** A request that hangs for a minute has failed. */
const REQUEST_MS = 60_000
const JSON_BYTES = 16_777_216

/** An answer of GitLab's that was read whole; `undefined` for one whose status is 404. */
export interface Answer<T> {
  readonly body: T
  readonly headers: Headers
}

/** GitLab's REST API over `fetch`: one request at a time, tried again by the step that asked, never here. */
export class GitlabApi {
  constructor(
    /** The repository's URL, for people. */
    private readonly url: string,
    /** `https://gitlab.example/api/v4/projects/group%2Fproject` */
    private readonly project: string,
    private readonly credentials: Credentials,
  ) {}

  /** The JSON at a path below the project; undefined: there is none (404). */
  async json<T>(
    path: string,
    query: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<Answer<T> | undefined> {
    const found = await this.bytes(`${path}${queryText(query)}`, JSON_BYTES, signal)
    if (found === undefined) return undefined
    if (found.body === undefined) throw new Unavailable(`GitLab answered ${path} with more than ${JSON_BYTES} bytes`)
    try {
      return { body: JSON.parse(found.body.toString('utf8')) as T, headers: found.headers }
    } catch (cause) {
      throw new Unavailable(`GitLab answered ${path} with something else than JSON`, { cause })
    }
  }

  /** The bytes at a path below the project; the body is undefined if it is larger than `most`. */
  async bytes(path: string, most: number, signal: AbortSignal): Promise<Answer<Buffer | undefined> | undefined> {
    return withToken(this.credentials, { signal }, async (token) => {
      const limit = AbortSignal.any([signal, AbortSignal.timeout(REQUEST_MS)])
      try {
        const answer = await fetch(`${this.project}${path}`, {
          headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
          redirect: 'manual',
          signal: limit,
        })
        if (answer.ok) return { body: await bodyOf(answer, most), headers: answer.headers }
        const text = (await bodyOf(answer, JSON_BYTES))?.toString('utf8') ?? ''
        if (answer.status === 404) return undefined
        throw this.failure(answer, text, token)
      } catch (error) {
        if (signal.aborted) throw signal.reason
        // What `fetch` throws: an address that isn't found, a connection that breaks, the timeout. Its classes may be another realm's.
        const { name } = error as Error
        if (name === 'TypeError' || name === 'TimeoutError')
          throw new Unavailable(`GitLab can't be reached: ${reasonOf(error as Error)}`)
        throw error
      }
    })
  }

  private failure(answer: Response, text: string, token: string | undefined): Error {
    const { status, statusText, headers } = answer
    const said = saidIn(text, token)
    const seen = `GitLab ${status} ${statusText}${said === '' ? '' : ` (${said})`}`.replace(/ {2}/g, ' ')
    if (status === 429 || status >= 500) {
      const seconds = Number(headers.get('retry-after'))
      const isKnown = Number.isFinite(seconds) && seconds > 0
      return new Unavailable(seen, isKnown ? { retryAfter: `${Math.ceil(Math.min(seconds, 86_400))}s` } : {})
    }
    const denied = new AccessDenied(this.url, seen, 'the token needs read_api')
    if (status === 401) return new TokenRefused(denied)
    if (status === 403) return denied
    if (status >= 300 && status < 400)
      return new RepositoryNotFound(this.url, seen, `the project has moved: register its new URL`)
    return new Error(`${seen}: expected an answer of GitLab's REST API, version 4`)
  }
}

export const queryText = (query: Readonly<Record<string, string>>): string => {
  const text = new URLSearchParams(query).toString()
  return text === '' ? '' : `?${text}`
}

/** The query of the next page, by the Link header; its host isn't used, as a server behind a proxy may name another one. */
export function nextPage(headers: Headers): Record<string, string> | undefined {
  const next = /<([^>]*)>\s*;\s*rel="?next"?/i.exec(headers.get('link') ?? '')?.[1]
  const url = next === undefined ? undefined : URL.parse(next, 'http://gitlab/')
  return url ? Object.fromEntries(url.searchParams) : undefined
}

async function bodyOf(answer: Response, most: number): Promise<Buffer | undefined> {
  if (Number(answer.headers.get('content-length') ?? 0) > most) {
    await answer.body?.cancel()
    return undefined
  }
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of answer.body ?? []) {
    size += chunk.length
    if (size > most) return undefined // leaving the loop cancels the body
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

function saidIn(text: string, token: string | undefined): string {
  let said: unknown
  try {
    const body: unknown = JSON.parse(text)
    if (typeof body === 'object' && body !== null) {
      const { message, error, error_description: description, scope } = body as Record<string, unknown>
      const scopes = typeof scope === 'string' ? `one of these scopes is needed: ${scope}` : undefined
      said = [description ?? message ?? error, scopes].filter((part) => typeof part === 'string').join('; ')
    }
  } catch {
    said = ''
  }
  const short = typeof said === 'string' ? said.slice(0, 300) : ''
  return token === undefined ? short : short.replaceAll(token, '***')
}

const reasonOf = (error: Error): string => {
  const { cause } = error
  return cause ? `${error.message}: ${(cause as Error).message}` : error.message
}
