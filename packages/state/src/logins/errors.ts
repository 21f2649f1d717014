/** A key that a secret was sealed with is missing, or is another one under the same name. */
export class KeyUnusable extends Error {
  override readonly name = 'KeyUnusable'
  constructor(
    /** The key's name. */
    readonly key: string,
    problem: string,
  ) {
    super(problem)
  }
}

/** A login didn't yield a token. The message has neither secrets nor what the server answered, except names of fields. */
export class LoginFailed extends Error {
  override readonly name = 'LoginFailed'
  constructor(
    /** The name of the profile. */
    readonly profile: string,
    problem: string,
    /** The status of the answer; undefined if there was none. */
    readonly status?: number | undefined,
  ) {
    super(`${profile}: ${problem}`)
  }
}
