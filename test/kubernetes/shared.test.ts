import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { expect, jest, test } from '@jest/globals'
import { eventually } from '../support/database.js'
import { isAlive } from '../support/database-local.js'
import { describeWhere, START_TIMEOUT_MS } from './support/availability.js'

jest.setTimeout(START_TIMEOUT_MS)

const module = fileURLToPath(new URL('control-plane/shared.mjs', import.meta.url))

/** A process that asks for the control plane of a run which ends with that process. */
async function asker(folder: string) {
  const program = `
    const { sharedControlPlane } = await import(${JSON.stringify(module)})
    console.log(JSON.stringify(await sharedControlPlane({ folder: ${JSON.stringify(folder)}, pid: process.pid })))
    setInterval(() => {}, 1000)`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(child, 'exit').then(([code]) => Promise.reject(new Error(`it ended with ${code}`)))
  ended.catch(() => undefined)
  const [line] = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), ended])
  return { child, ...(JSON.parse(String(line)) as { kubeconfig: string }) }
}

describeWhere("a run's control plane", { own: true }, () => {
  test('goes with its folder when the run is killed', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'phaselock-shared-'))
    try {
      const { child, kubeconfig } = await asker(folder)
      const keeper = Number(await readFile(join(folder, 'kubernetes-keeper'), 'utf8'))
      expect(existsSync(kubeconfig)).toBe(true)
      child.kill('SIGKILL')
      await eventually(() => expect([isAlive(keeper), existsSync(dirname(kubeconfig))]).toEqual([false, false]), {
        timeoutMs: 180_000,
      })
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  })
})
