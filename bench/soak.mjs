import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

const CHAOS = fileURLToPath(new URL('../chaos/main.ts', import.meta.url))

/** `npm run chaos -- --faults`, which has all of it; here only so that it can be started, and judged, like the others. */
export async function run(_server, { quick, minutes = quick ? 0.4 : 10 }) {
  const flags = ['--faults', '--minutes', String(minutes), '--json']
  const chaos = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', CHAOS, ...flags], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let text = ''
  chaos.stdout.on('data', (chunk) => {
    text += chunk
  })
  await once(chaos, 'close')
  const result = JSON.parse(text)
  if (result.error) throw new Error(`it could not be run: ${result.error.message}`)
  if (result.verdict === 'not shown') throw new Error(`it could not be shown: ${result.notShown.join('; ')}`)
  return { ...result, wrong: result.off.length }
}
