/** The reason that the server of a connection string can't be used. */
export type UnreachableReason = 'refused' | 'no-such-host' | 'authentication' | 'timeout' | 'other'

const ADVICE: Record<UnreachableReason, string> = {
  refused: 'start the server, or correct the host and port',
  'no-such-host': "correct the host's name",
  authentication: 'correct the user, password and authSource',
  timeout: 'check the network, firewalls and TLS settings, or wait until the server is up',
  other: "see the server's answer",
}

/** The server of a connection string doesn't answer, or refuses us. The message never holds the password. */
export class DatabaseUnreachable extends Error {
  override readonly name = 'DatabaseUnreachable'
  constructor(
    /** The connection string with its password replaced. */
    readonly redactedUri: string,
    /** The kind of failure; for `other` see `said`. */
    readonly reason: UnreachableReason,
    /** The driver's message. */
    readonly said: string,
  ) {
    super(`expected a MongoDB server at ${redactedUri}, got: ${said}; ${ADVICE[reason]}`)
  }
}

/** The reason behind an error of the driver's connect, in a user's terms. */
export function unreachableReason(error: Error & { code?: unknown }): UnreachableReason {
  const said = `${error.message} ${(error.cause as Error | undefined)?.message ?? ''}`
  if (error.code === 18 || /authentication failed|bad auth/i.test(said)) return 'authentication'
  if (/ECONNREFUSED/.test(said)) return 'refused'
  if (/ENOTFOUND|EAI_AGAIN|ENODATA|querySrv/.test(said)) return 'no-such-host'
  if (/timed? ?out/i.test(said)) return 'timeout'
  return 'other'
}
