import { spawn } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { testServerUri, withDatabase } from './database.js'

/** A program that has ended. */
export interface ProgramRun {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

/** Runs a program of Node on the run's server. @param onText called with all of its standard error so far, and its pid */
export function runProgram(
  args: readonly string[],
  onText: (text: string, pid: number) => void = () => undefined,
): Promise<ProgramRun> {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, MONGODB_URI: withDatabase(testServerUri(), 'unused') }
    const child = spawn(process.execPath, args, { env })
    let [out, err] = ['', '']
    child.stdout.on('data', (text) => (out += text))
    child.stderr.on('data', (text) => {
      err += text
      onText(err, child.pid!)
    })
    child.once('error', reject)
    child.once('close', (code) => resolve({ code, out, err }))
  })
}

/** The children of a process that run this program. */
export async function childrenOf(pid: number, program: string): Promise<number[]> {
  const found: number[] = []
  for (const entry of await readdir('/proc')) {
    if (!/^\d+$/.test(entry)) continue
    const [command, stat] = await Promise.all(
      ['cmdline', 'stat'].map((file) => readFile(`/proc/${entry}/${file}`, 'utf8').catch(() => '')),
    )
    if (command!.includes(program) && stat!.split(') ')[1]?.split(' ')[1] === String(pid)) found.push(Number(entry))
  }
  return found
}

export const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
