import { randomBytes } from 'node:crypto'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Db, MongoClient } from 'mongodb'
import { connectDatabase, type DatabaseConnection } from '../database/index.js'

/**
 * The server that a test named, else that of MONGODB_URI, else a database on this machine, in a temporary folder.
 * @throws NoDatabase and what else connecting throws
 */
export async function connectTestServer(uri: string | undefined): Promise<DatabaseConnection> {
  const isNamed = Boolean(uri || process.env['MONGODB_URI'])
  const dataDir = isNamed ? undefined : await mkdtemp(join(tmpdir(), 'phaselock-kit-'))
  // CI may run tests in a pod: what is started for them ends with them.
  const env = { ...process.env, KUBERNETES_SERVICE_HOST: '' }
  return await connectDatabase({ uri, dataDir, env, temporary: true, log: () => {} })
}

/** An empty database of a test's own. */
export const newDatabase = (client: MongoClient, prefix: string): Db =>
  client.db(`${prefix}_${randomBytes(8).toString('hex')}`)
