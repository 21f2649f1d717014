import type { MongoClient, MongoClientOptions } from 'mongodb'
import { protocolClient, protocolClientOptions, withoutProtocolOptions } from '../database/index.js'

/** What a client may have been given besides its connection string, and what a second one needs to reach the same server. */
const CARRIED = [
  'tls',
  'tlsCAFile',
  'tlsCRLFile',
  'tlsCertificateKeyFile',
  'tlsCertificateKeyFilePassword',
  'ca',
  'cert',
  'crl',
  'key',
  'passphrase',
  'pfx',
  'secureContext',
  'servername',
  'rejectUnauthorized',
  'checkServerIdentity',
  'replicaSet',
  'directConnection',
  'serverApi',
  'family',
  'lookup',
  'proxyHost',
  'proxyPort',
  'proxyUsername',
  'proxyPassword',
  // How documents look to handlers, and what may not be stored in the clear.
  'autoEncryption',
  'bsonRegExp',
  'ignoreUndefined',
  'promoteBuffers',
  'promoteLongs',
  'promoteValues',
  'raw',
  'serializeFunctions',
  'useBigInt64',
  'compressors',
] as const

interface Credentials {
  readonly username: string
  readonly password: string
  readonly source: string
  readonly mechanism: string
  readonly mechanismProperties: object
}

/**
 * A connected client to the same server as the app's own one, with the timeouts and the write concern of the lock protocol.
 * Undefined when the client doesn't tell its connection string (the driver has no public way to ask for it), or when a second
 * one can't be had.
 */
export async function secondClient(
  given: unknown,
  lockTimeoutMs: number,
  more: Pick<MongoClientOptions, 'maxPoolSize' | 'socketTimeoutMS'> = {},
): Promise<MongoClient | undefined> {
  const uri = (given as { s?: { url?: unknown } } | undefined)?.s?.url
  if (typeof uri !== 'string') return undefined
  let second: MongoClient | undefined
  try {
    second = protocolClient(withoutProtocolOptions(uri), {
      ...carriedOptions((given as { options?: Record<string, unknown> }).options ?? {}),
      ...protocolClientOptions(lockTimeoutMs),
      minPoolSize: 0,
      ...more,
    })
    await second.connect()
    await second.db('admin').command({ ping: 1 })
    return second
  } catch {
    await second?.close().catch(() => undefined)
    return undefined
  }
}

/** What a client's own options say beyond its connection string, as options for another client. */
export function carriedOptions(options: Record<string, unknown>): MongoClientOptions {
  const carried = Object.fromEntries(CARRIED.filter((name) => options[name] !== undefined).map((n) => [n, options[n]]))
  const credentials = options['credentials'] as Credentials | undefined
  if (!credentials) return carried
  const { username, password, source, mechanism, mechanismProperties } = credentials
  return {
    ...carried,
    ...(username && { auth: { username, password } }),
    authSource: source,
    authMechanism: mechanism as NonNullable<MongoClientOptions['authMechanism']>,
    authMechanismProperties: mechanismProperties,
  }
}
