import type { Collection, Db, Document, MongoClientOptions } from 'mongodb'
import { numbersOf, OWN_READING, type OwnersNumbers } from '../options/index.js'
import { alwaysAnswering } from './answer.js'
import { durableOn, firstContact } from './durable.js'

/** The lock timeout that a client is prepared for unless another is given. */
export const DEFAULT_LOCK_TIMEOUT_MS = 30_000

/** The time that a connection or a heartbeat may take, and the interval of heartbeats. See docs/operations-outages.md. */
const HEARTBEAT_MS = 2_000
/** The driver accepts no shorter one. */
const LEAST_HEARTBEAT_MS = 500

/**
 * Settings of a client that claims and records (lock protocol, point 11): every wait of the driver ends within a third of
 * `lockTimeoutMs`, so that a replica learns of a dead server while it still has its leases. 30 s -> 10 s, 3 s -> 1 s. A network
 * that swallows everything is detected by heartbeats, not by slow commands: after 4 s at most the old connections are given up, and
 * new ones exist 2 s after it has come back. Until the server is known, writes wait for a majority (see durable.ts); reads come
 * from the primary. The driver resends a write only where the server can distinguish a resend from a second write. A tailable
 * awaitData cursor (see LISTENING), or a command that may take longer than a third of the lock timeout, needs a separate client.
 */
export function protocolClientOptions(lockTimeoutMs: number): MongoClientOptions {
  const limit = Math.max(1, Math.floor(lockTimeoutMs / 3))
  return {
    appName: 'phaselock',
    serverSelectionTimeoutMS: limit,
    connectTimeoutMS: Math.min(limit, HEARTBEAT_MS),
    heartbeatFrequencyMS: Math.max(LEAST_HEARTBEAT_MS, Math.min(limit, HEARTBEAT_MS)),
    socketTimeoutMS: limit,
    waitQueueTimeoutMS: limit,
    retryWrites: true,
    retryReads: true,
    writeConcern: { w: 'majority', journal: true },
    readPreference: 'primary',
  }
}

/** The time that the server may hold a listener's `getMore` while nothing happens: an idle listener sends two commands a minute. */
const AWAIT_MS = 30_000
/** The time that a socket needs beyond that to distinguish a slow answer from no answer. */
const AWAIT_SLACK_MS = 10_000

/**
 * The settings of a listener's client besides the protocol's options: its answers may take half a minute, and that is no outage. A
 * network that swallows everything is still detected by heartbeats. Each listener keeps one connection, and briefly takes another
 * to end a wait on it. The pool has no limit of its own, because an app may listen in several databases.
 */
export const LISTENING = { socketTimeoutMS: AWAIT_MS + AWAIT_SLACK_MS, minPoolSize: 0 } as const

/** The time that a `getMore` may wait on this database's client: 8 s on one that wasn't made for it and has a socket timeout of 10 s. */
export function awaitMsOf(db: Db): number {
  const socketMs = db.client?.options?.socketTimeoutMS || LISTENING.socketTimeoutMS
  return Math.min(AWAIT_MS, Math.floor(socketMs * 0.8))
}

/**
 * A collection for claims and outcomes: durable writes (see durable.ts) and reads from the primary, whatever the URI or the client say. The
 * read concern is `local`; what a decision rests on passes `majority` with the command (docs/replica-sets.md).
 * Strings that are not UTF-8 (from another writer) are read with replacement characters instead of failing the whole batch.
 * Numbers are read as numbers (`OWN_READING`); `ownersNumbers` says how the database reads them by itself, unless with `plainNumbers`.
 * Each of its commands (and `toArray`) ends, at the latest with NoAnswer well after the client's socket timeout.
 */
export function protocolCollection<T extends Document>(db: Db, name: string, plainNumbers = false): Collection<T> {
  const options = { readPreference: 'primary', readConcern: { level: 'local' }, enableUtf8Validation: false } as const
  const collection = db.collection<T>(name, { ...options, ...OWN_READING })
  const numbers = plainNumbers ? undefined : numbersOf(db)
  if (numbers) owners.set(collection, numbers)
  // The driver reads it for each command; the server isn't known before that.
  Object.defineProperty(collection, 'writeConcern', { get: () => durableOn(db.client) })
  return alwaysAnswering(collection, db.client?.options?.socketTimeoutMS, db.client, () => firstContact(db.client))
}

const owners = new WeakMap<object, OwnersNumbers>()

/** The number format that the owner of a protocol collection's database wants; undefined: the one that Phaselock reads. */
export const ownersNumbers = (collection: object): OwnersNumbers | undefined => owners.get(collection)
