import { InvalidLockProvider } from './errors.js'

/** The kinds of store for named locks: the values of `provider` and PHASELOCK_LOCKS besides `auto`. */
export const PROVIDER_KINDS = ['mongodb', 'postgres', 'mysql', 'redis', 'redis-quorum', 'memory'] as const
/** A kind of store for named locks; `memory` excludes only callers in this process. */
export type ProviderKind = (typeof PROVIDER_KINDS)[number]

/** `distributed` if other processes use the same locks, `single` if not. `auto`: the environment decides. */
export type LockMode = 'auto' | 'single' | 'distributed'

export interface ProviderChoice {
  readonly provider?: ProviderKind | 'auto' | undefined
  readonly mode?: LockMode | undefined
  readonly url?: string | undefined
  /** Several clients: a quorum of Redis servers. */
  readonly client?: unknown
  /** True if this process has its own MongoDB connection, which it also uses for other data. */
  readonly hasDatabase?: boolean
  readonly env: Readonly<Record<string, string | undefined>>
}

const SCHEMES: Readonly<Record<string, ProviderKind>> = {
  mongodb: 'mongodb',
  'mongodb+srv': 'mongodb',
  postgres: 'postgres',
  postgresql: 'postgres',
  mysql: 'mysql',
  mariadb: 'mysql',
  redis: 'redis',
  rediss: 'redis',
}

/**
 * Chooses the store of locks: the named provider, else that of the URL or the client, else by the mode: a single process keeps them in
 * memory, several keep them in their MongoDB. The mode is found from the environment: the process's own MongoDB, MONGODB_URI, a pod's
 * name, or Kubernetes imply several.
 * @throws InvalidLockProvider if locks in memory would exclude nothing, or if two options contradict each other
 */
export function chooseProvider(choice: ProviderChoice): ProviderKind {
  const { provider = 'auto', url, client } = choice
  const byUrl = url ? kindOfUrl(url) : undefined
  const byClient = client === undefined ? undefined : kindOfClient(client)
  if (byUrl && byClient) throw new InvalidLockProvider('expected a url or a client for locks, got both; keep one')
  const found = byUrl ?? byClient
  if (provider === 'auto') return found ?? byMode(choice)
  if (found && found !== provider)
    throw new InvalidLockProvider(
      `expected a ${byUrl ? 'url' : 'client'} for locks in ${provider}, got one for ${found}; correct one of the two`,
    )
  if (!found && provider !== 'mongodb' && provider !== 'memory')
    throw new InvalidLockProvider(
      `expected a url or a client for locks in ${provider}, got neither; set PHASELOCK_LOCKS_URL to ${provider === 'redis-quorum' ? 'redis://..., redis://..., redis://...' : `${provider}://...`}`,
    )
  return provider
}

/** The URLs of several servers, separated by commas. A comma in one URL belongs to it: MongoDB's hosts have them, too. */
export const urlsIn = (url: string): string[] => url.split(/\s*,\s*(?=rediss?:\/\/)/)

function kindOfUrl(given: string): ProviderKind {
  const [url = '', ...more] = urlsIn(given)
  if (more.length > 0) return 'redis-quorum'
  const scheme = /^([a-z+]+):\/\//.exec(url)?.[1] ?? ''
  const kind = SCHEMES[scheme]
  if (kind) return kind
  throw new InvalidLockProvider(
    `expected a url for locks that begins with ${Object.keys(SCHEMES).join('://, ')}://, got ${scheme ? `${scheme}://...` : 'one without a scheme'}`,
  )
}

/** By shape, because an app may bring another copy of a driver. */
function kindOfClient(client: unknown): ProviderKind {
  if (Array.isArray(client)) {
    if (client.every((one) => kindOfClient(one) === 'redis')) return 'redis-quorum'
    throw new InvalidLockProvider('client: expected a list of clients of ioredis or redis, one for each server')
  }
  const has = (method: string) => typeof (client as Record<string, unknown> | null)?.[method] === 'function'
  if (has('collection') && has('command')) return 'mongodb'
  if (has('call') || has('sendCommand')) return 'redis'
  if (has('execute') && has('getConnection')) return 'mysql'
  if (has('query')) return 'postgres'
  throw new InvalidLockProvider(
    'client: expected a MongoDB Db, a Pool of pg, mysql2 or mariadb, or a client of ioredis or redis',
  )
}

function byMode({ mode = 'auto', hasDatabase = false, env }: ProviderChoice): ProviderKind {
  if (mode === 'single') return 'memory'
  if (hasDatabase || env['MONGODB_URI']) return 'mongodb'
  const many = (['POD_NAME', 'KUBERNETES_SERVICE_HOST'] as const).find((name) => env[name])
  if (mode === 'auto' && many === undefined) return 'memory'
  throw new InvalidLockProvider(
    `expected a server for locks, but none is configured, and ${mode === 'distributed' ? 'the mode is distributed' : `${many} says that there are several replicas`}: ` +
      'locks in memory would not exclude each other; set PHASELOCK_LOCKS_URL or MONGODB_URI, or PHASELOCK_MODE=single if this is the only replica',
  )
}
