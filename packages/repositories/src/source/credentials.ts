/**
 * The access to a private repository: from a login of `phaselock-state`, or from anywhere else. A source asks for a token before each
 * request, and for another one, once, where the server refuses it. It keeps tokens out of arguments, URLs, errors and logs.
 */
export interface Credentials {
  /** The user's name that git sends with the token. Default `oauth2`, which GitLab takes with each kind of token. */
  readonly user?: string | undefined
  /** The token; undefined: the repository is read without one. */
  token(options: CredentialsOptions): Promise<string | undefined>
  /** Another token than the one that was refused; undefined: there is none. */
  refresh?(options: CredentialsOptions & { readonly replacing: string }): Promise<string | undefined>
}

/** The options that each call of `Credentials` gets. */
export interface CredentialsOptions {
  readonly signal: AbortSignal
}

/** No credentials, for repositories that everyone may read. */
export const noCredentials: Credentials = { token: async () => undefined }

/**
 * One fixed token.
 * @throws TypeError for a token that no header can carry
 * @example gitSource({ url, credentials: fixedToken(process.env.GITLAB_TOKEN!), cache })
 */
export function fixedToken(token: string, user?: string): Credentials {
  checkToken(token)
  return { user, token: async () => token }
}

/** @throws TypeError; the message never contains the token */
export function checkToken(token: string): string {
  if (typeof token !== 'string' || !/^[\x21-\x7e]{1,8192}$/.test(token))
    throw new TypeError('expected a token of 1 to 8192 printable ASCII characters without spaces')
  return token
}

/** Thrown inside a source by a request whose token was refused; what it shows is thrown if no other token is to be had. */
export class TokenRefused extends Error {
  constructor(readonly shown: Error) {
    super(shown.message)
  }
}

/**
 * Runs a request with a token, and once more with another one where the first was refused.
 * @throws the error that the last refused request has shown
 */
export async function withToken<T>(
  credentials: Credentials,
  options: CredentialsOptions,
  request: (token: string | undefined) => Promise<T>,
): Promise<T> {
  const given = await credentials.token(options)
  const token = given === undefined ? undefined : checkToken(given)
  try {
    return await request(token)
  } catch (error) {
    if (!(error instanceof TokenRefused)) throw error
    const other = token === undefined ? undefined : await credentials.refresh?.({ ...options, replacing: token })
    if (other === undefined || other === token) throw error.shown
    try {
      return await request(checkToken(other))
    } catch (again) {
      throw again instanceof TokenRefused ? again.shown : again
    }
  }
}
