import { randomBytes } from 'node:crypto'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Db, MongoClient } from 'mongodb'
import { connectWith, type DatabaseConnection } from '../database/index.js'

/**
 * Connects to the server that a test named, else to that of MONGODB_URI, else to a database on this machine, in a temporary folder.
 * @throws NoDatabase and other errors of connecting
 */
export async function connectTestServer(uri: string | undefined): Promise<DatabaseConnection> {
  const isNamed = Boolean(uri || process.env['MONGODB_URI'])
  const dataDir = isNamed ? undefined : await mkdtemp(join(tmpdir(), 'phaselock-kit-'))
  // CI may run tests in a pod: servers started for the tests end with them.
  const env = { ...process.env, KUBERNETES_SERVICE_HOST: '' }
  return await connectWith({ uri, dataDir, env, temporary: true, log: () => {} })
}

/** An empty database of a test's own. */
export const newDatabase = (client: MongoClient, prefix: string): Db =>
  client.db(`${prefix}_${randomBytes(8).toString('hex')}`)
