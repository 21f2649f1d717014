import { spawn } from 'node:child_process'

export interface Run {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

/** `npm run chaos`, on the built package (`npm run test:system` builds it). */
export function chaos(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Run> {
  return new Promise((resolve, reject) => {
    const node = ['--disable-warning=ExperimentalWarning', 'chaos/main.ts']
    const child = spawn(process.execPath, [...node, ...args], { env: { ...process.env, ...env } })
    let [out, err] = ['', '']
    child.stdout.on('data', (text) => (out += text))
    child.stderr.on('data', (text) => (err += text))
    child.once('error', reject)
    child.once('close', (code) => resolve({ code, out, err }))
  })
}
