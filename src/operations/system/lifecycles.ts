import type { Db } from 'mongodb'
import { LIFECYCLES_COLLECTION, readOwnFields } from '../../lock/index.js'
import { modelRegistered, type RegisteredModel } from '../../phases/index.js'
import { NotFound } from './errors.js'

/** The system's own databases. */
const INTERNAL = ['admin', 'config', 'local']
/** The maximum number of databases to search: finding the right one must not take long on a server with thousands. */
const MOST_DATABASES = 500

/**
 * The lifecycles that replicas have registered in a database, in the order of their first registration.
 * @param where the server's name for people: its connection string without a password
 * @param needed if true, it is an error if there are none
 * @throws NotFound then
 */
export async function registeredLifecycles(
  db: Db,
  where: string,
  { needed = true }: { readonly needed?: boolean } = {},
): Promise<RegisteredModel[]> {
  const entries = await readOwnFields((how) => db.collection(LIFECYCLES_COLLECTION).find({}, how).toArray())
  const found = entries.map(modelRegistered).filter((one) => one !== undefined)
  if (found.length > 0 || !needed) return found
  const others = await otherDatabases(db)
  const database = db.databaseName
  throw new NotFound(
    `no lifecycles in the database '${database}' of ${where}: a replica registers its own in ${LIFECYCLES_COLLECTION} when it starts, and ${entries.length === 0 ? 'there is no entry' : 'no entry there is sound'}`,
    { reason: 'noLifecycles', database, others },
    others.length > 0
      ? `there are some in ${named(others)}: name the database with --database`
      : 'start your app (or phaselock start) on it, or name another server (--uri, MONGODB_URI) or database (--database)',
  )
}

/** The first names, and the number of the rest. */
function named(names: readonly string[], most = 50): string {
  const more = names.length - most
  return `${names
    .slice(0, most)
    .map((name) => `'${name}'`)
    .join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

/** Databases of the same server where replicas have registered lifecycles, as far as this user may see them. */
async function otherDatabases(db: Db): Promise<string[]> {
  try {
    const { databases } = await db.admin().listDatabases({ nameOnly: true, authorizedDatabases: true })
    const names = databases
      .map(({ name }) => name)
      .filter((name) => !INTERNAL.includes(name) && name !== db.databaseName)
    const has = names.slice(0, MOST_DATABASES).map(async (name) => {
      const found = db.client.db(name).listCollections({ name: LIFECYCLES_COLLECTION }, { nameOnly: true })
      // A database that is being dropped, or that this user may not read, hides none of the others.
      return (await found.hasNext().catch(() => false)) ? [name] : []
    })
    return (await Promise.all(has)).flat()
  } catch {
    return [] // a hint only: it needs rights that reading doesn't
  }
}
