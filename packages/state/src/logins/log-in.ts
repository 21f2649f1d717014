import { durationMs } from 'phaselock/tasks'
import { systemClock } from '../time.js'
import { LoginFailed } from './errors.js'
import { filled, type LoginProfile } from './profile.js'

const DEFAULT_TTL = '1h'
const DEFAULT_REFRESH_BEFORE = '1m'
const ANSWER_WITHIN_MS = 20_000
const LARGEST_ANSWER = 1024 * 1024
const LONGEST_TOKEN = 65_536
/** The longest life that is believed: a second and a millisecond are easily confused. */
const LONGEST_LIFE_MS = 366 * 86_400_000

/** The request of a profile with everything filled in. */
export interface LoginRequest {
  readonly profile: Omit<LoginProfile, 'secrets'>
  readonly user: string | undefined
  readonly secrets: Readonly<Record<string, string>>
  readonly signal: AbortSignal
  readonly fetch: typeof globalThis.fetch
}

/** A token, and the time that it is kept. */
export interface FreshToken {
  readonly token: string
  readonly keptMs: number
}

/** Logs in: one request. @throws LoginFailed, whose message has no secret and nothing of the answer but names of fields */
export async function logIn({ profile, user, secrets, signal, fetch }: LoginRequest): Promise<FreshToken> {
  const { name, method = 'POST', body, form } = profile
  const meaningOf = (placeholder: string) =>
    placeholder === 'user' ? (user ?? '') : (secrets[placeholder.replace(/^secret\./, '')] ?? '')
  const url = filled(profile.url, (one) => encodeURIComponent(meaningOf(one))) as string
  const type = form ? 'application/x-www-form-urlencoded' : 'application/json'
  const content = filled(body, meaningOf)
  const text = form ? new URLSearchParams(content as Record<string, string>).toString() : JSON.stringify(content)
  const headers = new Headers({ accept: 'application/json', ...(body !== undefined && { 'content-type': type }) })
  for (const [header, value] of Object.entries(filled(profile.headers ?? {}, meaningOf) as Record<string, string>)) {
    try {
      headers.set(header, value)
    } catch {
      // The error quotes the value, which may be a secret.
      throw new LoginFailed(
        name,
        `header ${header}: expected a value that a header can hold: one line of Latin characters`,
      )
    }
  }
  // The query may have secrets.
  const where = `${method} ${profile.url.split('?')[0]}`
  let answer: Response
  let answered: string
  try {
    answer = await fetch(url, {
      method,
      headers,
      redirect: 'manual',
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_WITHIN_MS)]),
      ...(body !== undefined && { body: text }),
    })
    answered = await textOf(answer)
  } catch (error) {
    throw new LoginFailed(name, `expected ${where} to answer, got ${reasonOf(error)}`)
  }
  if (!answer.ok) {
    const advice =
      answer.status < 400
        ? 'redirects are not followed; give the final URL'
        : 'check the secrets of the profile, and the user'
    throw new LoginFailed(name, `expected ${where} to answer 2xx, got ${answer.status}; ${advice}`, answer.status)
  }
  return tokenOf(profile, answer, answered)
}

function tokenOf(profile: Omit<LoginProfile, 'secrets'>, { headers, status }: Response, answered: string): FreshToken {
  const {
    name,
    token: place,
    expiresIn,
    expiresAt,
    ttl = DEFAULT_TTL,
    refreshBefore = DEFAULT_REFRESH_BEFORE,
  } = profile
  const json = parsed(answered)
  const token = place.startsWith('header:') ? headers.get(place.slice('header:'.length)) : at(json, place)
  if (typeof token !== 'string' || token === '' || token.length > LONGEST_TOKEN)
    throw new LoginFailed(
      name,
      `expected a token at ${place} of the answer, got ${json === undefined ? 'an answer that is not JSON' : `the fields ${fieldsOf(json)}`}`,
      status,
    )
  if (!/^[\x20-\x7e]+$/.test(token))
    throw new LoginFailed(
      name,
      `expected a token at ${place} of the answer that a header can hold: printable characters of ASCII, got others`,
      status,
    )
  const clockMs = Date.parse(headers.get('date') ?? '') || systemClock.now().getTime()
  const lifeMs = lifeOf(at(json, expiresIn), at(json, expiresAt), clockMs) ?? durationMs(ttl)
  if (!(lifeMs > 0 && lifeMs <= LONGEST_LIFE_MS))
    throw new LoginFailed(
      name,
      `expected a token that lives for up to a year, got one that ends ${Math.round(lifeMs / 1_000)} s after it was given; see expiresIn and expiresAt of the profile`,
      status,
    )
  return { token, keptMs: Math.max(lifeMs - durationMs(refreshBefore), Math.ceil(lifeMs / 2)) }
}

function lifeOf(seconds: unknown, end: unknown, clockMs: number): number | undefined {
  // OAuth servers say null for a life that they don't give.
  if (seconds != null) return Number(seconds) * 1_000
  if (end == null) return undefined
  const endMs = typeof end === 'number' || /^\d+$/.test(String(end)) ? Number(end) * 1_000 : Date.parse(String(end))
  return endMs - clockMs
}

function at(json: unknown, place: string | undefined): unknown {
  if (place === undefined) return undefined
  return place.split('.').reduce<unknown>((value, field) => {
    const isThere = typeof value === 'object' && value !== null && Object.hasOwn(value, field)
    return isThere ? (value as Record<string, unknown>)[field] : undefined
  }, json)
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function fieldsOf(json: unknown, path = ''): string {
  if (typeof json !== 'object' || json === null || path.split('.').length > 5) return path === '' ? typeof json : path
  const names = Object.entries(json)
    .slice(0, 10)
    .map(([field, value]) => fieldsOf(value, path === '' ? field : `${path}.${field}`))
  return names.join(', ').slice(0, 300) || 'none'
}

async function textOf(answer: Response): Promise<string> {
  const parts: Uint8Array[] = []
  let bytes = 0
  for await (const part of answer.body ?? []) {
    bytes += part.byteLength
    if (bytes > LARGEST_ANSWER) throw new Error(`an answer of more than ${LARGEST_ANSWER} bytes`)
    parts.push(part)
  }
  return Buffer.concat(parts).toString('utf8')
}

/** The reason without what it may quote: an error of `fetch` has its code in its cause. */
function reasonOf(error: unknown): string {
  const { name, cause, message } = error as Error
  if (name === 'TimeoutError') return `none within ${ANSWER_WITHIN_MS} ms`
  if (name === 'AbortError') return 'no answer before the lock on this login was over'
  const code = (cause as { code?: unknown } | undefined)?.code
  return typeof code === 'string' ? code : message.startsWith('an answer of more') ? message : 'no connection'
}
