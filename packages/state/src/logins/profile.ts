import { type Duration, InvalidOptions } from 'phaselock'
import { durationMs } from 'phaselock/tasks'

/**
 * How to log in somewhere. `{{user}}` and `{{secret.<name>}}` stand for the user and for a secret, in the URL (encoded there), in headers and in
 * texts of the body.
 *
 * @example
 * ```ts
 * const crm: LoginProfile = {
 *   name: 'crm',
 *   url: 'https://crm.example.org/oauth/token',
 *   body: { grant_type: 'password', username: '{{user}}', password: '{{secret.password}}' },
 *   form: true,
 *   token: 'access_token',
 *   expiresIn: 'expires_in',
 *   refreshBefore: '5m',
 *   secrets: { password: process.env.CRM_PASSWORD },
 * }
 * ```
 */
export interface LoginProfile {
  /** 1 to 64 letters, digits, `-`, `_` and `.`. */
  readonly name: string
  /** `https:` or `http:`. Redirects aren't followed: they would send the secrets elsewhere. */
  readonly url: string
  /** Default POST. */
  readonly method?: 'GET' | 'POST' | 'PUT' | undefined
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** The body, sent as JSON. Default: none. */
  readonly body?: unknown
  /** True: the body, an object of texts, is sent as `application/x-www-form-urlencoded`. Default false. */
  readonly form?: boolean | undefined
  /** The place of the token in the answer's JSON: `access_token`, `data.token`; `header:<name>` for a header of the answer. */
  readonly token: string
  /** The place of the token's life in seconds: `expires_in`. */
  readonly expiresIn?: string | undefined
  /** The place of its end, as ISO 8601 or in seconds since 1970; read by the clock of the answer's `Date` header. */
  readonly expiresAt?: string | undefined
  /** The token's life where the answer doesn't say. Default 1h. */
  readonly ttl?: Duration | undefined
  /** A login is kept for its life less this, and at least for half of its life. Default 1m. */
  readonly refreshBefore?: Duration | undefined
  /** Secrets by name. They are sealed before they are stored. */
  readonly secrets?: Readonly<Record<string, string>> | undefined
}

const KNOWN = [
  'name',
  'url',
  'method',
  'headers',
  'body',
  'form',
  'token',
  'expiresIn',
  'expiresAt',
  'ttl',
  'refreshBefore',
  'secrets',
]
const PLACEHOLDER = /\{\{\s*([\w.-]+)\s*\}\}/g
const LONGEST_SECRET = 65_536
const LARGEST_PROFILE = 262_144

/** @throws InvalidOptions with all problems; none of them has a secret */
export function checkProfile(profile: LoginProfile): void {
  const { name, url, method, headers, body, form, token, secrets = {} } = profile
  const problems = Object.keys(profile)
    .filter((field) => !KNOWN.includes(field))
    .map((field) => `unknown field '${field}'; known: ${KNOWN.join(', ')}`)
  if (!isProfileName(name))
    problems.push(`name: expected 1 to 64 letters, digits, '-', '_' and '.', got ${JSON.stringify(name)}`)
  if (!isHttp(url))
    problems.push("url: expected an http or https URL without a user or password in it; put secrets into 'secrets'")
  if (method !== undefined && !['GET', 'POST', 'PUT'].includes(method))
    problems.push(`method: expected GET, POST or PUT, got ${method}`)
  if (method === 'GET' && body !== undefined) problems.push('body: expected none with the method GET')
  if (typeof token !== 'string' || token === '')
    problems.push("token: expected the place of the token in the answer, such as 'access_token', got none")
  if (form && !isTexts(body)) problems.push('body: expected an object of texts, because form is true')
  if (headers !== undefined && !isTexts(headers)) problems.push('headers: expected an object of texts')
  else
    for (const header of Object.keys(headers ?? {}))
      if (!/^[\w!#$%&'*+.^`|~-]+$/.test(header))
        problems.push(`headers: expected a name of a header, got ${JSON.stringify(header)}`)
  if (!isTexts(secrets)) problems.push('secrets: expected an object of texts')
  else
    for (const [secret, text] of Object.entries(secrets))
      if (text === '' || text.length > LONGEST_SECRET || !/^[\w-]{1,64}$/.test(secret))
        problems.push(
          `secrets: ${secret}: expected 1 to ${LONGEST_SECRET} characters under a name of letters, digits, '-' and '_'`,
        )
  for (const field of ['ttl', 'refreshBefore'] as const) problems.push(...durationProblems(field, profile[field]))
  const asJson = JSON.stringify({ url, headers, body }) ?? ''
  if (asJson.length > LARGEST_PROFILE)
    problems.push(`expected a profile of at most ${LARGEST_PROFILE} characters, got ${asJson.length}`)
  for (const [, used = ''] of asJson.matchAll(PLACEHOLDER))
    if (used !== 'user' && !Object.hasOwn(secrets, used.replace(/^secret\./, '')))
      problems.push(
        `{{${used}}}: expected {{user}} or {{secret.<name>}} of ${Object.keys(secrets).join(', ') || 'secrets, of which there are none'}`,
      )
  if (problems.length > 0) throw new InvalidOptions(`login profile ${isProfileName(name) ? name : ''}`.trim(), problems)
}

export const isProfileName = (name: unknown): name is string => typeof name === 'string' && /^[\w.-]{1,64}$/.test(name)

function durationProblems(field: string, value: Duration | undefined): string[] {
  if (value === undefined) return []
  try {
    durationMs(value, field)
    return []
  } catch (error) {
    return [(error as Error).message]
  }
}

function isHttp(url: unknown): boolean {
  // A placeholder isn't a part of every URL's grammar.
  const parsed =
    typeof url === 'string' &&
    URL.canParse(url.replaceAll(PLACEHOLDER, 'x')) &&
    new URL(url.replaceAll(PLACEHOLDER, 'x'))
  return parsed !== false && /^https?:$/.test(parsed.protocol) && parsed.username === '' && parsed.password === ''
}

const isTexts = (value: unknown): value is Readonly<Record<string, string>> =>
  typeof value === 'object' &&
  value !== null &&
  !Array.isArray(value) &&
  Object.values(value).every((one) => typeof one === 'string')

/** True if a login of the profile differs by user. */
export const needsUser = ({ url, headers, body }: Pick<LoginProfile, 'url' | 'headers' | 'body'>): boolean =>
  /\{\{\s*user\s*\}\}/.test(JSON.stringify({ url, headers, body }))

/** Fills in the placeholders of a text, of all texts in a list or object. */
export function filled(value: unknown, meaningOf: (name: string) => string): unknown {
  if (typeof value === 'string') return value.replaceAll(PLACEHOLDER, (_all, name: string) => meaningOf(name))
  if (Array.isArray(value)) return value.map((one) => filled(one, meaningOf))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, filled(one, meaningOf)]))
}
