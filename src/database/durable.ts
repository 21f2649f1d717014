import { type MongoClient, WriteConcern } from 'mongodb'

/** Survives elections: the write concern for a replica set, a sharded cluster, or a server that isn't known yet. */
const BY_MAJORITY = new WriteConcern('majority', undefined, true)
/**
 * A standalone server is its own majority, and its journal is what counts. The embedded engine acknowledges `w: 'majority'` before its
 * journal has it: 52 of 1,048 writes were lost in 20 `kill -9`, none with `w: 1`.
 */
const BY_JOURNAL = new WriteConcern(1, undefined, true)

/** The driver's knowledge of a client's servers from their `hello`. Its types leave it out. */
interface Described {
  readonly topology?: { readonly description?: { readonly servers: ReadonlyMap<string, { readonly type: string }> } }
}

/** The last known write concern of a client that has lost its server for the moment. */
const lastKnown = new WeakMap<MongoClient, WriteConcern>()

/** The write concern under which this client's server keeps what it has acknowledged, `kill -9` included. */
export function durableOn(client: MongoClient | undefined): WriteConcern {
  return (client && (described(client) ?? lastKnown.get(client))) ?? BY_MAJORITY
}

/** To be awaited before a first write: resolves once {@link durableOn} knows the server; undefined where it already does. */
export function firstContact(client: MongoClient | undefined): Promise<unknown> | undefined {
  if (!client || described(client) || lastKnown.has(client)) return undefined
  return client.db('admin').command({ ping: 1 })
}

function described(client: MongoClient): WriteConcern | undefined {
  for (const { type } of (client as Described).topology?.description?.servers.values() ?? []) {
    if (type === 'Unknown') continue
    const durable = type === 'Standalone' ? BY_JOURNAL : BY_MAJORITY
    if (lastKnown.get(client) !== durable) lastKnown.set(client, durable)
    return durable
  }
  return undefined
}
