/**
 * Builds the control plane's programs (see programs.mjs), so that the first test that needs them doesn't wait for minutes.
 * A download that fails is tried again.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { controlPlanePrograms } from './programs.mjs'

const TRIES = 4
const started = performance.now()
const note = (text) => console.log(`${((performance.now() - started) / 1000).toFixed(0).padStart(4)} s  ${text}`)

for (let attempt = 1; ; attempt += 1) {
  try {
    const { paths } = await controlPlanePrograms(note)
    for (const path of Object.values(paths)) note(path)
    break
  } catch (error) {
    if (attempt === TRIES || error.name === 'ServerMissing') throw error
    note(`${error.message}\ntrying again`)
    await sleep(attempt * 5_000)
  }
}
