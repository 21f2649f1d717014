import { type Db, type Document, MongoServerError } from 'mongodb'

/** Collections that a replica works on, or coordinates by, are spread over shards. */
export class ShardedCollections extends Error {
  override readonly name = 'ShardedCollections'
  constructor(
    readonly database: string,
    readonly collections: readonly string[],
  ) {
    super(
      `expected the collections of the database '${database}' to be unsharded, but ${collections.join(', ')} ` +
        `${collections.length === 1 ? 'is' : 'are'} sharded: MongoDB doesn't keep an update of several documents apart from the migration ` +
        'of a chunk, so a claim or an outcome may be lost unseen; keep them on one shard, and spread the load over several databases (docs/replica-sets.md)',
    )
  }
}

const NAMESPACE_NOT_FOUND = 26
/** A shard's plans pass this stage in a sharded collection only: it drops what has migrated. */
const SHARDED_ONLY = '"stage":"SHARDING_FILTER"'

/**
 * Which of these collections are sharded, by the plan of a query, as `find` is the only right that this needs. One that isn't there is
 * unsharded. Without a router (`mongos`) nothing is asked.
 * @throws what the driver throws
 */
export async function shardedAmong(db: Db, names: readonly string[]): Promise<string[]> {
  const { msg }: Document = await db.command({ hello: 1 })
  if (msg !== 'isdbgrid') return []
  const plans = await Promise.all(names.map((name) => planOf(db, name)))
  return names.filter((_, i) => JSON.stringify(plans[i] ?? {}).includes(SHARDED_ONLY))
}

async function planOf(db: Db, name: string): Promise<Document | undefined> {
  try {
    return await db.collection(name).find().explain('queryPlanner')
  } catch (error) {
    // A router knows no database before its first collection.
    if (error instanceof MongoServerError && error.code === NAMESPACE_NOT_FOUND) return undefined
    throw error
  }
}

/** @throws ShardedCollections */
export async function requireUnsharded(db: Db, names: readonly string[]): Promise<void> {
  const sharded = await shardedAmong(db, names)
  if (sharded.length > 0) throw new ShardedCollections(db.databaseName, sharded)
}
