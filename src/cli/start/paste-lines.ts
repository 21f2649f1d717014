import { type DatabaseConnection, redactUri } from '../../database/index.js'
import { shellQuoted, typed } from '../../options/index.js'
import type { LifecycleModel } from '../../phases/index.js'

/**
 * Lines to paste that insert a document in a lifecycle's first entry phase and show it. A connection string with a password isn't
 * printed: mongosh then takes it from MONGODB_URI. The commands need no `--lifecycles`, because the replica has already registered its
 * lifecycles.
 */
export function pasteLines(
  { uri, db }: Pick<DatabaseConnection, 'uri' | 'db'>,
  { name, collection, entries }: LifecycleModel,
) {
  const of = typed(name)
  const documents = `db.getSiblingDB(${JSON.stringify(db.databaseName)}).getCollection(${JSON.stringify(collection)})`
  return {
    /** For a shell. */
    commands: `npx phaselock add ${of} && npx phaselock list ${of}`,
    /** For a shell: opens mongosh. */
    mongosh: redactUri(uri) === uri ? `mongosh ${shellQuoted(uri)}` : 'mongosh "$MONGODB_URI"',
    inMongosh: [`${documents}.insertOne({ phase: ${JSON.stringify(entries[0])} })`, `${documents}.find()`],
  }
}
