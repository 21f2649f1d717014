import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connectWith } from '../../database/index.js'

/** The run's own database on MONGODB_URI or on a local server with its data in a temporary folder. */
export async function openDemoDatabase(note: (text: string) => void) {
  const dataDir = await mkdtemp(join(tmpdir(), 'phaselock-demo-'))
  const name = `phaselock_demo_${randomBytes(4).toString('hex')}`
  try {
    const connection = await connectWith({ database: name, dataDir, temporary: true, log: note })
    /** True if the server keeps running after the demo, so that the demo's data must be dropped. */
    const serverGoesOn = connection.source === 'uri'
    if (serverGoesOn) await rm(dataDir, { recursive: true, force: true })
    const close = async () => {
      if (serverGoesOn) await connection.db.dropDatabase().catch(() => undefined)
      await connection.close()
    }
    return { connection, name, serverGoesOn, close }
  } catch (error) {
    await rm(dataDir, { recursive: true, force: true })
    throw error
  }
}
