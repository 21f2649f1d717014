import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

const CLI = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))

/** `phaselock demo --faults`, which has all of it; here only so that it can be started, and judged, like the others. */
export async function run(_server, { quick, minutes = quick ? 0.4 : 10 }) {
  const flags = ['demo', '--faults', '--minutes', String(minutes), '--json']
  const demo = spawn(process.execPath, [CLI, ...flags], { stdio: ['ignore', 'pipe', 'inherit'] })
  let text = ''
  demo.stdout.on('data', (chunk) => {
    text += chunk
  })
  await once(demo, 'close')
  const result = JSON.parse(text)
  if (result.error) throw new Error(`the demo could not be run: ${result.error.message}`)
  if (result.verdict === 'not shown') throw new Error(`the demo could not be shown: ${result.notShown.join('; ')}`)
  return { ...result, wrong: result.off.length }
}
