/** A server that was tried, and its message. */
export interface DatabaseAttempt {
  /** A name for people: 'mongod on PATH'. */
  readonly name: string
  /** The reason that it couldn't be used: its own message. */
  readonly said: string
}

/** MONGODB_URI is missing, and there is no local database to use instead. The message has the reason and the ways out. */
export class NoDatabase extends Error {
  override readonly name = 'NoDatabase'
  constructor(
    why: string,
    /** The ways out other than setting MONGODB_URI. */
    otherWaysOut: readonly string[] = [],
    /** The servers that were tried, and what each reported. */
    readonly tried: readonly DatabaseAttempt[] = [],
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
