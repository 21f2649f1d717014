import { MongoClient } from 'mongodb'

/** A connection string that the driver can't use. The message never holds the password. */
export class InvalidMongoUri extends Error {
  override readonly name = 'InvalidMongoUri'
  constructor(
    /** The connection string with its password replaced. */
    readonly redactedUri: string,
    /** The reason, in the driver's words where these quote no secret. */
    readonly reason: string,
    /** The source of the string: 'MONGODB_URI' or 'the uri option'. */
    readonly origin: string,
  ) {
    super(
      `expected a connection string such as mongodb://user:password@host:27017/database in ${origin}, got ${redactedUri}: ${reason}. ` +
        'Correct it, or leave it out to use a local database',
    )
  }
}

/** A connection string that can be printed: the password and secret options are `***`, even where it is malformed. */
export function redactUri(uri: string): string {
  return redactPassword(uri).replace(
    /([?&](?:tlsCertificateKeyFilePassword|proxyPassword|authMechanismProperties)=)[^&]*/gi,
    '$1***',
  )
}

/** Hides the password, from the first ':' after the scheme up to the last '@': one with an unescaped '@' or '/' is hidden as a whole. */
function redactPassword(uri: string): string {
  const scheme = /^[a-z0-9+.-]*:\/\//i.exec(uri)?.[0] ?? ''
  const rest = uri.slice(scheme.length)
  const at = rest.lastIndexOf('@')
  const colon = rest.indexOf(':')
  return at < 0 || colon < 0 || colon > at ? uri : `${scheme}${rest.slice(0, colon)}:***${rest.slice(at)}`
}

/**
 * Checks a connection string without connecting.
 * @returns the name of the database in its path, if any
 * @throws InvalidMongoUri
 */
export function databaseNameInUri(uri: string, origin: string): string | undefined {
  const redacted = redactUri(uri)
  if (!/^mongodb(\+srv)?:\/\//.test(uri)) {
    throw new InvalidMongoUri(redacted, "it doesn't begin with mongodb:// or mongodb+srv://", origin)
  }
  try {
    new MongoClient(uri)
  } catch (error) {
    throw new InvalidMongoUri(redacted, reasonWithoutSecrets(uri, redacted, String((error as Error).message)), origin)
  }
  const path = /^[^/]+\/\/[^/?]*\/([^?]*)/.exec(uri)?.[1]
  return path ? decodeURIComponent(path) : undefined
}

/** The driver's reason, unless it quotes any part of what was redacted. */
function reasonWithoutSecrets(uri: string, redacted: string, reason: string): string {
  if (redacted === uri) return reason
  const quotesUri = reason.split(uri).join(redacted)
  const [before, after] = redacted.split('***', 2) as [string, string]
  const secret = uri.slice(before.length, uri.length - after.length)
  const parts = [secret, ...secret.split(/[^A-Za-z0-9]+/)].filter((part) => part !== '')
  const cleaned = quotesUri.split(redacted).join('')
  return parts.some((part) => cleaned.includes(part))
    ? "it can't be read; characters such as @ : / ? # % in a user name or password must be percent-encoded (@ is %40)"
    : quotesUri
}

/** Options that the lock protocol decides, in lower case; the URI's would override, or contradict, the client's. */
const PROTOCOL_OPTIONS = new Set(
  Object.values({
    writes: ['w', 'wtimeout', 'wtimeoutms', 'journal', 'j', 'retrywrites'],
    reads: ['readpreference', 'readpreferencetags', 'maxstalenessseconds', 'readconcernlevel', 'retryreads'],
    waits: ['serverselectiontimeoutms', 'connecttimeoutms', 'sockettimeoutms', 'waitqueuetimeoutms', 'timeoutms'],
    name: ['appname'],
  }).flat(),
)

/** The connection string without the options that the lock protocol decides; hosts, credentials, TLS and pool sizes stay. */
export function withoutProtocolOptions(uri: string): string {
  const start = uri.indexOf('?')
  if (start < 0) return uri
  const kept = uri
    .slice(start + 1)
    .split('&')
    .filter((option) => !PROTOCOL_OPTIONS.has(option.split('=')[0]!.toLowerCase()))
  return kept.length > 0 ? `${uri.slice(0, start)}?${kept.join('&')}` : uri.slice(0, start)
}
