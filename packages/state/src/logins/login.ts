import { inspect } from 'node:util'

/** A login as its user gets it. Its token shows neither in logs nor in JSON. */
export class Login {
  /** The token. */
  declare readonly token: string
  /** The value of an Authorization header: `Bearer <token>`. */
  declare readonly authorization: string

  constructor(
    /** The name of the profile. */
    readonly profile: string,
    /** The user it is for; undefined: the profile has one login for all. */
    readonly user: string | undefined,
    token: string,
  ) {
    // Not enumerable: a copy, a log line or an error that has this object doesn't have the token.
    Object.defineProperty(this, 'token', { value: token })
    Object.defineProperty(this, 'authorization', { get: () => `Bearer ${token}` })
  }

  toJSON(): object {
    return { profile: this.profile, user: this.user, token: '[hidden]' }
  }

  [inspect.custom](): string {
    return `Login(${this.profile}${this.user === undefined ? '' : `, ${this.user}`}, token hidden)`
  }
}
