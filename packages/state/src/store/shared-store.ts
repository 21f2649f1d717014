import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import type { Db } from 'mongodb'
import { type Clock, InvalidOptions, type Logger } from 'phaselock'
import {
  LockExecutor,
  type LockProvider,
  memoryLocks,
  mongoLockProvider,
  openLockProvider,
  type RedisClient,
} from 'phaselock/locks'
import { aDuration, aFlag, checked, environmentIn, having, optional, type Reads } from '../options.js'
import { systemClock } from '../time.js'
import type { Backend } from './backend.js'
import { type Bell, MemoryBell, MongoBell } from './bell.js'
import { Expired } from './expired.js'
import { Guard } from './guard.js'
import { Hearing } from './hearing.js'
import { requireWord } from './key.js'
import { Layer } from './layer.js'
import { Loads } from './loads.js'
import { sharedMemory } from './memory.js'
import { MongoBackend, STATE_COLLECTION } from './mongo.js'
import type { StoreParts } from './parts.js'
import { RedisBackend } from './redis.js'
import { RedisBell } from './redis-bell.js'
import { senderOf, subscriberOf } from './redis-client.js'
import type { SharedValues, ValuesOptions } from './types.js'
import { Values } from './values.js'
import { warnings } from './warnings.js'

/** The options of `new SharedStore(...)`. */
export interface SharedStoreOptions {
  /**
   * The place of the values: your `Db`, or your client of ioredis, by its shape. You connect and close it. Default: the memory of this process, which
   * is refused where the environment says that there are several (PHASELOCK_MODE=distributed, POD_NAME, KUBERNETES_SERVICE_HOST).
   */
  readonly client?: Db | RedisClient | undefined
  /** The second part of each key, for several environments on one server. Default `PHASELOCK_ENVIRONMENT`, else `default`. */
  readonly environment?: string | undefined
  /** MongoDB: the collection of the values. Default `'phaselock.state'`. */
  readonly collection?: string | undefined
  /** MongoDB: the same database on a client made for listening (`doorbellClient`). Default: `client`, of whose pool listening then takes a connection. */
  readonly doorbellDb?: Db | undefined
  /** False: neither rings nor listens. Default true: it listens while there is a layer or a caller waits. */
  readonly doorbell?: boolean | undefined
  /** The locks of `getOrLoad`. Default: in the same place as the values. */
  readonly locks?: LockProvider | undefined
  /** Default: warnings and errors on standard error. */
  readonly logger?: Logger | undefined
  /** The variables that name the environment and say whether there are several processes. Default process.env. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined
  /** For tests: measures ages. Default: the process's clocks. */
  readonly clock?: Clock | undefined
}

const aText = optional<string>((value) => typeof value === 'string' && value !== '', 'text')
const aLogger = having<Logger>(['debug', 'info', 'warn', 'error'], 'a logger with debug, info, warn and error')
const storeOptions = {
  client: having<Db | RedisClient>([], 'a Db of MongoDB, or a client of ioredis'),
  environment: aText,
  collection: aText,
  doorbellDb: having<Db>(['collection', 'command'], 'a Db of MongoDB'),
  doorbell: aFlag,
  locks: having<LockProvider>(['lock'], 'a lock provider of phaselock/locks'),
  logger: aLogger,
  env: having<Readonly<Record<string, string | undefined>>>([], 'an object with variables'),
  clock: having<Clock>(['now', 'monotonicMs'], 'a clock'),
}

const mostEntries: Reads<number | undefined> = optional<number>(
  (value) => Number.isInteger(value) && (value as number) >= 1 && (value as number) <= 100_000,
  'a whole number from 1 to 100,000',
)
const layerOptions = { maxAge: aDuration('1s'), most: mostEntries }
const MAX_AGE_MS = 1_000
const MOST_ENTRIES = 1_000

const valuesOptions = {
  ttl: aDuration(),
  environment: aText,
  layer: ((value, name) => {
    if (value === undefined || value === false) return undefined
    const { maxAge = MAX_AGE_MS, most = MOST_ENTRIES } = checked(
      name,
      layerOptions,
      value === true ? {} : (value as object),
    )
    return { maxAgeMs: maxAge, most }
  }) satisfies Reads<unknown>,
}

/**
 * Values that all processes share, in MongoDB or Redis; in the memory of the process where there is only one.
 *
 * @example
 * ```ts
 * import { connectDatabase } from 'phaselock/database'
 * import { SharedStore } from 'phaselock-state'
 *
 * const { db } = await connectDatabase()
 * const store = new SharedStore({ client: db })
 * const scenarios = store.of<{ steps: string[] }>('scenario', { ttl: '24h' })
 * await scenarios.set('session-1', { steps: ['greet'] })
 * console.log(await scenarios.get('session-1')) // on every replica
 * await store.close()
 * ```
 * @throws InvalidOptions
 */
export class SharedStore {
  /** `mongodb`, `redis` or `memory`. */
  readonly kind: string
  private readonly environment: string
  private readonly parts: StoreParts
  private readonly loads: Loads
  private readonly expired: Expired | undefined

  constructor(options: SharedStoreOptions = {}) {
    const given = checked('new SharedStore', storeOptions, options)
    const {
      environment = environmentIn(given.env ?? process.env),
      clock = systemClock,
      logger = warnings,
      doorbell = true,
    } = given
    requireWord('environment', environment)
    const { backend, bell, locks, db } = placeOf(given)
    this.kind = backend.kind
    this.environment = environment
    this.expired = backend.removeExpired
      ? new Expired(backend, db, given.collection ?? STATE_COLLECTION, logger)
      : undefined
    const hearing = new Hearing(doorbell ? bell : undefined, logger)
    this.parts = {
      ...{ backend, hearing, clock, logger },
      guard: new Guard(backend.kind, logger),
      bell: doorbell ? bell : undefined,
      used: () => this.expired?.start(),
    }
    let executor: Promise<LockExecutor> | undefined
    this.loads = new Loads(this.parts, () => {
      executor ??= locks().then((provider) => new LockExecutor(provider))
      return executor
    })
  }

  /**
   * The values under a prefix, such as `scenario`. Make it once, and use it everywhere: a layer belongs to it.
   * @example store.of<string>('banner', { layer: true })
   * @throws InvalidOptions; InvalidKey for a prefix or an environment that can't be used
   */
  of<V = unknown>(prefix: string, options: ValuesOptions = {}): SharedValues<V> {
    const {
      ttl: ttlMs,
      environment = this.environment,
      layer,
    } = checked(`store.of('${prefix}')`, valuesOptions, options)
    requireWord('prefix', prefix)
    requireWord('environment', environment)
    const { hearing, clock } = this.parts
    const made = layer && new Layer(prefix, layer, hearing, clock)
    return new Values<V>(this.parts, this.loads, { prefix, environment, ttlMs, layer: made })
  }

  /**
   * Removes values that have expired, for all processes. In MongoDB one process does so each ten minutes by itself, from its first write on; Redis
   * needs no help.
   * @returns their number
   */
  async removeExpired(): Promise<number> {
    return (await this.expired?.removeAll()) ?? 0
  }

  /** Stops listening, and sends the last rings. It closes no client that was passed in. */
  async close(): Promise<void> {
    this.expired?.stop()
    await Promise.all([this.parts.hearing.close(), this.parts.bell?.flush()])
  }
}

interface Place {
  readonly backend: Backend
  readonly bell: Bell
  readonly locks: () => Promise<LockProvider>
  readonly db?: Db
}

type Given = { readonly [K in keyof typeof storeOptions]: ReturnType<(typeof storeOptions)[K]> }

/** By the client's shape, because an app may bring another copy of a driver. */
function placeOf(given: Given): Place {
  const { client, collection, doorbellDb, locks } = given
  const self = `${hostname()}-${process.pid}-${randomBytes(4).toString('hex')}`
  const has = (method: string) => typeof (client as unknown as Record<string, unknown>)[method] === 'function'
  if (client === undefined) {
    requireSingle(given.env ?? process.env)
    return {
      backend: sharedMemory,
      bell: new MemoryBell(),
      locks: async () => locks ?? sharedMemoryLocks,
    }
  }
  if (has('collection') && has('command')) {
    const db = client as Db
    return {
      backend: new MongoBackend(db, collection),
      bell: new MongoBell(db, doorbellDb, self),
      locks: async () => locks ?? mongoLockProvider(db),
      db,
    }
  }
  if (!has('call') && !has('sendCommand'))
    throw new InvalidOptions('new SharedStore', [
      'client: expected a Db of MongoDB, or a client of ioredis, got another object',
    ])
  const redis = client as RedisClient
  const send = senderOf(redis)
  return {
    backend: new RedisBackend(send),
    bell: new RedisBell(send, subscriberOf(redis), self),
    locks: async () => locks ?? (await openLockProvider({ client: redis, provider: 'redis', env: {} })),
  }
}

/** The locks of all stores in this process that keep their values in memory. */
const sharedMemoryLocks = memoryLocks()

function requireSingle(env: Readonly<Record<string, string | undefined>>): void {
  const mode = env['PHASELOCK_MODE']?.trim()
  if (mode === 'single') return
  const many = ['POD_NAME', 'KUBERNETES_SERVICE_HOST'].find((name) => env[name])
  if (mode !== 'distributed' && many === undefined) return
  throw new InvalidOptions('new SharedStore', [
    `client: expected a Db of MongoDB or a client of ioredis, because ${mode === 'distributed' ? 'PHASELOCK_MODE is distributed' : `${many} says that there are several replicas`}, got none: ` +
      'values in memory would not be shared; pass one, or set PHASELOCK_MODE=single if this is the only replica',
  ])
}
