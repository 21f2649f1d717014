import { type DatabaseConnection, redactUri } from '../../database/index.js'
import { type LifecycleModel, workingPhases } from '../../phases/index.js'

/**
 * Lines to paste that insert a document in a lifecycle's first entry phase and watch it until it rests. A connection string with a password isn't printed: the lines then take it
 * from MONGODB_URI.
 */
export function pasteLines(connection: Pick<DatabaseConnection, 'uri' | 'db'>, model: LifecycleModel) {
  const { uri } = connection
  const isSecret = redactUri(uri) !== uri
  const names = JSON.stringify(connection.db.databaseName)
  const collection = JSON.stringify(model.collection)
  const phase = JSON.stringify(model.entries[0])
  const working = JSON.stringify(workingPhases(model))
  const watch = (print: string, find: string, pause: string) =>
    `for (let d, i = 0; i < 60 && (!d || ${working}.includes(d.phase)); i++) { ${pause}; d = ${find}; ${print}(d._id, d.phase, d.progress?.waitingFor ?? "") }`
  const client = isSecret ? 'process.env.MONGODB_URI' : JSON.stringify(uri)
  const program = [
    'import { MongoClient } from "mongodb"',
    `const client = new MongoClient(${client}), documents = client.db(${names}).collection(${collection})`,
    `const { insertedId: _id } = await documents.insertOne({ phase: ${phase} })`,
    watch('console.log', 'await documents.findOne({ _id })', 'await new Promise((go) => setTimeout(go, 500))'),
    'await client.close()',
  ].join('; ')
  return {
    /** For a shell: opens mongosh. */
    mongosh: isSecret ? 'mongosh "$MONGODB_URI"' : `mongosh ${shellQuoted(uri)}`,
    inMongosh: [
      `documents = db.getSiblingDB(${names}).getCollection(${collection}); id = documents.insertOne({ phase: ${phase} }).insertedId`,
      watch('print', 'documents.findOne({ _id: id })', 'sleep(500)'),
    ],
    /** For a shell, in a folder where `mongodb` is installed. */
    node: `node --input-type=module -e ${shellQuoted(program)}`,
  }
}

/** One word of a POSIX shell. */
export const shellQuoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`
