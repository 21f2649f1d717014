import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connectDatabase } from '../dist/database/index.js'

/**
 * A server of the benchmark's own, its data in a temporary folder that goes with it; with MONGODB_URI set, that server.
 * Each `database()` is a new, empty one; `close` drops those that were made.
 */
export async function privateServer() {
  const dataDir = await mkdtemp(join(tmpdir(), 'phaselock-bench-'))
  const connection = await connectDatabase({ dataDir, temporary: true, log: () => undefined })
  const run = `bench_${process.pid}_${Math.floor(Math.random() * 1e6)}`
  const { version } = await connection.db.admin().serverInfo()
  const made = []
  return {
    uri: connection.uri,
    /** What it is, for the report: which source of connectDatabase, and the version. */
    description: `${connection.source} ${version}`,
    database() {
      const db = connection.client.db(`${run}_${made.length}`)
      made.push(db)
      return db
    },
    async close() {
      for (const db of made) await db.dropDatabase()
      await connection.close()
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}
