import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { open, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

/**
 * One control plane for all processes of a test run, with a keeper of its own (keeper.mjs): it outlives the process that asked
 * for it first, and ends with the run's process. A run is `{ folder, pid }`: a folder of its own, and the process that it ends with.
 *
 * - `kubernetes-keeper`: whoever has made this file is the keeper; its process id.
 * - `kubernetes.json`: written once, in one move: where the control plane is, or why there is none.
 */
const keeperFile = ({ folder }) => join(folder, 'kubernetes-keeper')
const resultFile = ({ folder }) => join(folder, 'kubernetes.json')
const KEEPER = fileURLToPath(new URL('keeper.mjs', import.meta.url))
const STOPPED_WITHIN_MS = 120_000

/**
 * The run's control plane, started when first asked for. May take minutes: see control-plane.mjs.
 * @returns `{ kubeconfig, auditLog }` @throws what went wrong when it was started
 */
export async function sharedControlPlane(run) {
  if (!existsSync(keeperFile(run))) {
    const child = spawn(process.execPath, [KEEPER, run.folder, String(run.pid)], {
      stdio: ['ignore', 'ignore', 'inherit'],
      detached: true,
    })
    child.unref()
  }
  for (;;) {
    const text = await readFile(resultFile(run), 'utf8').catch(() => undefined)
    if (text) {
      const { error, ...found } = JSON.parse(text)
      if (error) throw Object.assign(new Error(error.message), { name: error.name })
      return found
    }
    const keeper = await keeperOf(run)
    if (keeper && !isAlive(keeper) && !existsSync(resultFile(run))) {
      throw new Error(`expected the control plane's keeper to run, process ${keeper} is gone`)
    }
    await sleep(50)
  }
}

/** Ends the run's control plane if there is one; resolves when it is gone. */
export async function stopSharedControlPlane(run) {
  const keeper = await keeperOf(run)
  if (!keeper || !isAlive(keeper)) return
  process.kill(keeper, 'SIGTERM')
  const givenUpAt = performance.now() + STOPPED_WITHIN_MS
  while (isAlive(keeper)) {
    if (performance.now() > givenUpAt)
      throw new Error(`expected the control plane's keeper ${keeper} to end, it still runs`)
    await sleep(20)
  }
}

/** Becomes the run's keeper, unless there is one. */
export async function becomeKeeper(run) {
  try {
    const file = await open(keeperFile(run), 'wx')
    await file.writeFile(String(process.pid))
    await file.close()
    return true
  } catch (error) {
    if (error.code === 'EEXIST') return false
    throw error
  }
}

export async function tellResult(run, result) {
  await writeFile(`${resultFile(run)}.new`, JSON.stringify(result), { mode: 0o600 })
  await rename(`${resultFile(run)}.new`, resultFile(run))
}

export function isAlive(pid) {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error.code === 'EPERM'
  }
}

/** `undefined` while there is none, or while it writes the file. */
async function keeperOf(run) {
  return Number(await readFile(keeperFile(run), 'utf8').catch(() => '')) || undefined
}
