/** Builds what the tests of the manifests need, so that the first of them doesn't wait for minutes. A failed download is tried again. */
import { setTimeout as sleep } from 'node:timers/promises'
import { prepareAll } from './programs.mjs'

const TRIES = 4

for (let attempt = 1; ; attempt += 1) {
  try {
    await prepareAll((text) => console.log(text))
    break
  } catch (error) {
    if (attempt === TRIES || error.name === 'ServerMissing') throw error
    console.log(`${error.message}\ntrying again`)
    await sleep(attempt * 5_000)
  }
}
