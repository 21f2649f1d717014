import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ReplicaSet } from '../chaos/replica-set/replica-set.ts'
import { connectDatabase } from '../dist/database/index.js'

/**
 * A server of the benchmark's own, its data in a temporary folder that goes with it; with a URI given or MONGODB_URI set, that
 * server. Each `database()` is a new, empty one; `close` drops those that were made.
 * @param on `mongod`: the path of the server to start; `replicaSet`: three of them
 */
export async function privateServer({ uri, mongod, replicaSet = false } = {}) {
  const env = { ...process.env, ...(mongod && { MONGODB_URI: '', MONGOMS_SYSTEM_BINARY: mongod }) }
  const set = replicaSet ? await ReplicaSet.start({ env }) : undefined
  const dataDir = await mkdtemp(join(tmpdir(), 'phaselock-bench-'))
  const connection = await connectDatabase({
    uri: set?.uri ?? uri,
    dataDir,
    temporary: true,
    log: () => undefined,
    env,
  })
  const run = `bench_${process.pid}_${Math.floor(Math.random() * 1e6)}`
  const { version } = await connection.db.admin().serverInfo()
  const made = []
  return {
    uri: connection.uri,
    /** What it is, for the report: which source of connectDatabase, and the version. */
    description: `${set ? 'three members of mongod' : connection.source} ${version}`,
    database() {
      const db = connection.client.db(`${run}_${made.length}`)
      made.push(db)
      return db
    },
    /** CPU that the server's process has used so far, in seconds; NaN where it doesn't tell (Linux servers do). */
    async cpuSeconds() {
      const { extra_info: info } = await connection.db.admin().command({ serverStatus: 1 })
      return (Number(info?.user_time_us) + Number(info?.system_time_us)) / 1e6
    },
    /**
     * Commands that the server has counted since its start, those of these names left out; NaN where it doesn't count.
     * Asking is a command too: the difference of two readings has one too many.
     */
    async commandsSoFar(except) {
      const { metrics } = await connection.db.admin().command({ serverStatus: 1 })
      const counts = Object.entries(metrics?.commands ?? { none: { total: Number.NaN } })
      return counts.reduce((sum, [name, { total = 0 }]) => sum + (except.includes(name) ? 0 : Number(total)), 0)
    },
    async close() {
      for (const db of made) await db.dropDatabase()
      await connection.close()
      await set?.close()
      await rm(dataDir, { recursive: true, force: true, maxRetries: 10 })
    },
  }
}
