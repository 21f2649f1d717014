import { rm } from 'node:fs/promises'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const CONTROL_PLANE = resolve(fileURLToPath(import.meta.url), '../../kubernetes/control-plane/shared.mjs')

/** Ends the run's control plane if a test has started it, and its server: its keeper ends once this process has let go. The keeper removes the folder of a local one, this the other. */
export default async function globalTeardown(): Promise<void> {
  const { phaselockTestRun: run } = globalThis as {
    phaselockTestRun?: { connection: { source: string; close(): Promise<void> }; dataDir: string }
  }
  const { stopSharedControlPlane } = await import(CONTROL_PLANE)
  if (run) await stopSharedControlPlane({ folder: run.dataDir, pid: process.pid })
  await run?.connection.close()
  if (run?.connection.source === 'uri') await rm(run.dataDir, { recursive: true, force: true })
}
