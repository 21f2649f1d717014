import type { MongoClient, MongoClientOptions, MongoOptions } from 'mongodb'
import { protocolClient, protocolClientOptions } from '../database/index.js'

/**
 * Options of a client, besides its hosts, that a second one needs to reach the same server. `maxPoolSize` isn't among them: it limits the
 * app's own work, and at that limit claims and outcomes would wait for each other. The second client opens only the connections it uses.
 */
const CARRIED = Object.values({
  tls: ['tls', 'tlsCAFile', 'tlsCRLFile', 'tlsCertificateKeyFile', 'tlsCertificateKeyFilePassword'],
  certificates: ['ca', 'cert', 'crl', 'key', 'passphrase', 'pfx', 'secureContext'],
  checks: ['servername', 'rejectUnauthorized', 'checkServerIdentity'],
  server: ['replicaSet', 'directConnection', 'serverApi', 'family', 'lookup'],
  proxy: ['proxyHost', 'proxyPort', 'proxyUsername', 'proxyPassword'],
  /** Fields that may not be stored in the clear, and the representation of documents for handlers. */
  documents: ['autoEncryption', 'bsonRegExp', 'ignoreUndefined', 'promoteBuffers', 'promoteLongs', 'promoteValues'],
  values: ['raw', 'serializeFunctions', 'useBigInt64'],
  connections: ['compressors', 'zlibCompressionLevel', 'maxConnecting', 'maxIdleTimeMS'],
}).flat()
/** Allowed only if the hosts come from DNS. */
const CARRIED_WITH_SRV = ['srvMaxHosts', 'srvServiceName']

/**
 * A connected client to the same server as the app's own one, with the timeouts and the write concern of the lock protocol. Undefined if
 * the app's client doesn't expose its options, or if a second one can't be created.
 */
export async function secondClient(
  given: unknown,
  lockTimeoutMs: number,
  more: Pick<MongoClientOptions, 'maxPoolSize' | 'socketTimeoutMS'> = {},
): Promise<MongoClient | undefined> {
  const options = (given as { options?: Partial<MongoOptions> } | undefined)?.options
  const uri = options && uriOf(options)
  if (!uri) return undefined
  let second: MongoClient | undefined
  try {
    second = protocolClient(uri, {
      ...carriedOptions(options as Record<string, unknown>),
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

/** A connection string of a client's hosts; undefined if it has no hosts. */
export function uriOf({ srvHost, hosts = [], loadBalanced }: Partial<MongoOptions>): string | undefined {
  const query = loadBalanced ? '?loadBalanced=true' : '' // the driver accepts it nowhere else
  if (srvHost) return `mongodb+srv://${srvHost}/${query}`
  const named = hosts.map((host) => (host.socketPath ? encodeURIComponent(host.socketPath) : String(host)))
  return named.length > 0 ? `mongodb://${named.join(',')}/${query}` : undefined
}

/** The rest of a client's options, as options for another client. */
export function carriedOptions(options: Readonly<Record<string, unknown>>): MongoClientOptions {
  const names = options['srvHost'] ? [...CARRIED, ...CARRIED_WITH_SRV] : CARRIED
  const carried = Object.fromEntries(names.filter((name) => options[name] !== undefined).map((n) => [n, options[n]]))
  const credentials = options['credentials'] as MongoOptions['credentials']
  if (!credentials) return carried
  const { username, password, source, mechanism, mechanismProperties } = credentials
  return {
    ...carried,
    ...(username && { auth: { username, password } }),
    authSource: source,
    authMechanism: mechanism,
    authMechanismProperties: mechanismProperties,
  }
}

/** The driver's waits; 0 or undefined means no limit, except for the operation's own `timeoutMS`. */
const WAITS = ['serverSelectionTimeoutMS', 'connectTimeoutMS', 'socketTimeoutMS', 'waitQueueTimeoutMS'] as const

/**
 * The waits of a client that may last longer than a third of `lockTimeoutMs` (lock protocol, point 11), as `name=value`. Empty:
 * a replica that uses the client learns of a dead server while it still has its leases.
 */
export function endlessWaits(client: unknown, lockTimeoutMs: number): string[] {
  const options = (client as { options?: Record<string, unknown> } | undefined)?.options ?? {}
  const limit = lockTimeoutMs / 3
  const isShort = (value: unknown) => typeof value === 'number' && value > 0 && value <= limit
  if (isShort(options['timeoutMS'])) return []
  return WAITS.filter((name) => !isShort(options[name])).map((name) => `${name}=${Number(options[name] ?? 0)}`)
}
