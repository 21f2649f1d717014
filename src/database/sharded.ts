import type { Collection, Db, Document } from 'mongodb'
import { isServerError } from './driver-errors.js'

/** Collections that a replica works on, or coordinates by, are spread over shards in a way that isn't safe. */
export class ShardedCollections extends Error {
  override readonly name = 'ShardedCollections'
  constructor(
    /** The database's name. */
    readonly database: string,
    /** The names of the collections that aren't safe as they are sharded. */
    readonly collections: readonly string[],
  ) {
    super(
      `expected the collections of the database '${database}' to be unsharded, or sharded by _id ({ _id: 'hashed' } or { _id: 1 }), but of ` +
        `${collections.join(', ')} that can't be said: MongoDB keeps an _id unique, and executes a write once while its chunk migrates, only if ` +
        '_id is the whole shard key; phaselock.lifecycles, .limits and .duties must not be sharded at all (docs/replica-sets.md)',
    )
  }
}

const NAMESPACE_NOT_FOUND = 26
const UNAUTHORIZED = 13
/** A shard's plans pass this stage in a sharded collection only: it drops what has migrated. */
const SHARDED_ONLY = '"stage":"SHARDING_FILTER"'
/** The stage that reads whole documents: not needed where the index of `_id` has all fields of the shard key. */
const READS_DOCUMENTS = '"stage":"FETCH"'
const BY_ID_INDEX = '"keyPattern":{"_id":1}'

/** Namespaces that are sharded by `_id`, as far as this process has asked. */
const sharded = new Set<string>()

/**
 * True if a collection is spread over shards: each of its documents then has to be written by a command of its own. Known after
 * {@link learnSharding}.
 */
export const isSharded = (collection: Pick<Collection, 'namespace'>): boolean =>
  sharded.size > 0 && sharded.has(collection.namespace)

export interface Sharding {
  /** The shard key is `{ _id: 'hashed' }` or `{ _id: 1 }`. */
  readonly byId: readonly string[]
  readonly otherwise: readonly string[]
}

/**
 * Finds out which of these collections are sharded, by the plan of a query, because that needs no right but `find`. One that isn't
 * there, or that this user may not read, counts as unsharded. Without a router (`mongos`) nothing is asked.
 * @throws what the driver throws
 */
export async function learnSharding(db: Db, names: readonly string[]): Promise<Sharding> {
  const { msg }: Document = await db.command({ hello: 1 })
  if (msg !== 'isdbgrid') return { byId: [], otherwise: [] }
  const plans = new Map(await Promise.all(names.map(async (name) => [name, await planOf(db, name)] as const)))
  const { byId = [], otherwise = [] } = Object.groupBy(
    names.filter((name) => plans.get(name)!.includes(SHARDED_ONLY)),
    (name) => {
      const plan = plans.get(name)!
      return plan.includes(BY_ID_INDEX) && !plan.includes(READS_DOCUMENTS) ? 'byId' : 'otherwise'
    },
  )
  for (const name of byId) sharded.add(`${db.databaseName}.${name}`)
  return { byId, otherwise }
}

/** The plan of a query that the index of `_id` answers alone, unless a shard has to read documents for fields of their shard key. */
async function planOf(db: Db, name: string): Promise<string> {
  const reading = { projection: { _id: 1 }, hint: { _id: 1 } } as const
  try {
    return JSON.stringify(await db.collection(name).find({}, reading).explain('queryPlanner'))
  } catch (error) {
    // A router knows no database before its first collection. And a collection that this user may not read won't be written to.
    if (isServerError(error, NAMESPACE_NOT_FOUND) || isServerError(error, UNAUTHORIZED)) return ''
    throw error
  }
}

/**
 * @param names may be sharded by `_id`
 * @param whole must not be sharded
 * @returns those that are sharded otherwise
 */
export async function unsafelySharded(db: Db, names: readonly string[], whole: readonly string[]): Promise<string[]> {
  const { byId, otherwise } = await learnSharding(db, [...names, ...whole])
  return [...otherwise, ...byId.filter((name) => whole.includes(name))]
}

/** @throws ShardedCollections */
export async function requireSafeSharding(db: Db, names: readonly string[], whole: readonly string[]): Promise<void> {
  const unsafe = await unsafelySharded(db, names, whole)
  if (unsafe.length > 0) throw new ShardedCollections(db.databaseName, unsafe)
}
