/** Starts a test run's control plane, and ends it on SIGTERM or when the run's process is gone: `keeper.mjs FOLDER PID`. */
import { setTimeout as sleep } from 'node:timers/promises'
import { startControlPlane } from './control-plane.mjs'
import { becomeKeeper, isAlive, tellResult } from './shared.mjs'

const LOOK_EVERY_MS = 500
const run = { folder: process.argv[2], pid: Number(process.argv[3]) }
// In a build too: what it has started by then goes with it.
let told = false
process.on('SIGTERM', () => {
  told = true
})

if (await becomeKeeper(run)) {
  const starting = start()
  starting.catch(() => undefined)
  while (!told && isAlive(run.pid)) await sleep(LOOK_EVERY_MS / (told ? 10 : 1))
  const controlPlane = await Promise.race([starting, sleep(0)]).catch(() => undefined)
  await controlPlane?.stop()
  process.exit(0)
}

async function start() {
  try {
    const controlPlane = await startControlPlane({ note: (text) => process.stderr.write(`control plane: ${text}\n`) })
    await tellResult(run, { kubeconfig: controlPlane.kubeconfig, auditLog: controlPlane.auditLog })
    return controlPlane
  } catch ({ name, message }) {
    await tellResult(run, { error: { name, message } })
    return undefined
  }
}
