/** A server that was tried, and what it reported. */
export interface Attempt {
  /** What was tried, for people: 'mongod on PATH'. */
  readonly name: string
  /** Why it couldn't be used: its own message. */
  readonly said: string
}

/** MONGODB_URI is missing, and there is no local database to use instead. Says why, and what to do. */
export class NoDatabase extends Error {
  override readonly name = 'NoDatabase'
  constructor(
    why: string,
    /** What to do instead of setting MONGODB_URI. */
    otherWaysOut: readonly string[] = [],
    /** The servers that were tried, and what each reported. */
    readonly tried: readonly Attempt[] = [],
  ) {
    const waysOut = ['set MONGODB_URI, for example mongodb://127.0.0.1:27017/phaselock', ...otherWaysOut]
    super(
      [
        `expected MONGODB_URI to name a MongoDB server, but it is not set; ${why}`,
        ...tried.map(({ name, said }) => `  - ${name}: ${said}`),
        `To fix this: ${waysOut.join('; ')}`,
      ].join('\n'),
    )
  }
}
