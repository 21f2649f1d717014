import { rm } from 'node:fs/promises'

/** Ends the run's server: its keeper ends once this process has let go. The keeper removes the folder of a local one, this the other. */
export default async function globalTeardown(): Promise<void> {
  const { phaselockTestRun: run } = globalThis as {
    phaselockTestRun?: { connection: { source: string; close(): Promise<void> }; dataDir: string }
  }
  await run?.connection.close()
  if (run?.connection.source === 'uri') await rm(run.dataDir, { recursive: true, force: true })
}
