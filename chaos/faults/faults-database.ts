import { randomBytes } from 'node:crypto'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { waitFor } from '../../dist/cli/demo/wait-for.js'
import { connectDatabase, type DatabaseConnection } from '../../dist/database/index.js'
import { DatabaseProxy } from './database-proxy.ts'

const KEEPER_ENDS_WITHIN_MS = 15_000

/** The run's own local database, because it is killed, and a connection to it that can be disturbed. */
export interface FaultsDatabase {
  /** Directly to the server. */
  readonly connection: DatabaseConnection
  readonly name: string
  readonly proxy: DatabaseProxy
  /** The same database through the proxy. */
  readonly disturbedUri: string
  /** kill -9 of the engine; its keeper restarts it on the same port. False: it isn't running. */
  killEngine(): Promise<boolean>
  close(): Promise<void>
}

export async function openFaultsDatabase(note: (text: string, fields?: object) => void): Promise<FaultsDatabase> {
  const dataDir = await mkdtemp(join(tmpdir(), 'phaselock-faults-'))
  const name = `phaselock_faults_${randomBytes(4).toString('hex')}`
  try {
    // Not `temporary`: such data goes with its keeper, and the keeper with a killed engine.
    const env = { ...process.env }
    delete env['MONGODB_URI']
    const connection = await connectDatabase({ database: name, dataDir, log: note, env })
    const port = Number(new URL(connection.uri).port)
    const proxy = await DatabaseProxy.start(port)
    return {
      connection,
      name,
      proxy,
      disturbedUri: connection.uri.replace(`:${port}/`, `:${proxy.port}/`),
      killEngine: () => killEngine(dataDir),
      close: async () => {
        await proxy.close()
        await connection.close()
        await waitFor(async () => !(await engineState(dataDir))?.keeper, { forMs: KEEPER_ENDS_WITHIN_MS, everyMs: 100 })
        await rm(dataDir, { recursive: true, force: true, maxRetries: 10 })
      },
    }
  } catch (error) {
    await rm(dataDir, { recursive: true, force: true })
    throw error
  }
}

async function killEngine(dataDir: string): Promise<boolean> {
  try {
    const pid = (await engineState(dataDir))?.engine?.pid
    if (pid === undefined) return false
    process.kill(pid, 'SIGKILL')
    return true
  } catch {
    return false // it is gone already
  }
}

/** What the keeper has recorded of itself and its engine; each is absent when it has ended. */
async function engineState(dataDir: string): Promise<{ engine?: { pid: number }; keeper?: object } | undefined> {
  try {
    return JSON.parse(await readFile(join(dataDir, 'engine.json'), 'utf8'))
  } catch {
    return undefined
  }
}
