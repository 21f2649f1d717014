import type { Db } from 'mongodb'
import { collectionExists, LIFECYCLES_COLLECTION, unusableLockIndexes } from '../../../lock/index.js'
import { MissingIndexes } from '../../errors.js'

/**
 * For users without DDL rights: reads whether all that a replica would create is there. Nothing is created.
 * @throws MissingIndexes with the commands to paste
 */
export async function requireIndexes(db: Db, collections: readonly string[]): Promise<void> {
  const missing = await Promise.all([
    ...collections.map(async (name) =>
      (await unusableLockIndexes(db.collection(name))).map(({ what, problem, command }) => ({
        what: `${what}: ${problem}`,
        command,
      })),
    ),
    missingCollection(db, LIFECYCLES_COLLECTION),
  ])
  if (missing.flat().length > 0) throw new MissingIndexes(db.databaseName, missing.flat())
}

async function missingCollection(db: Db, name: string) {
  if (await collectionExists(db.collection(name))) return []
  return [{ what: `collection ${name}: it is missing`, command: `db.createCollection('${name}')` }]
}
