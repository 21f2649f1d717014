import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const CLI = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))
const STARTS_WITHIN_MS = 30_000
const run = promisify(execFile)

/**
 * One replica as users run it: `phaselock start` with a module of lifecycles, in a process of its own. The module may talk
 * with the benchmark over `process.send` and `process.on('message')`.
 * @param {{ uri: string, database: string, lifecycles: string, name?: string, http?: boolean, nodeOptions?: string[],
 *   env?: Record<string, string>, logLevel?: string }} options `lifecycles`: the file's name in replicas/; `http`: with the web server, for
 *   `metrics`
 * @returns once it has started
 */
export async function startReplica({ uri, database, lifecycles, name = 'bench', logLevel = 'error', ...more }) {
  const module = fileURLToPath(new URL(`./replicas/${lifecycles}`, import.meta.url))
  const flags = ['--uri', uri, '--database', database, '--lifecycles', module, '--name', name, '--log-level', logLevel]
  const { http = false, nodeOptions = [], env = {} } = more
  const child = spawn(
    process.execPath,
    [...nodeOptions, CLI, 'start', '--json', ...flags, ...(http ? ['--http', '0', '--http-host', '127.0.0.1'] : [])],
    { stdio: ['ignore', 'pipe', 'inherit', 'ipc'], env: { ...cleanEnv(), ...env } },
  )
  const exited = once(child, 'exit').then(([code, signal]) => signal ?? code)
  const killAtExit = () => child.kill('SIGKILL')
  process.on('exit', killAtExit)
  void exited.then(() => process.off('exit', killAtExit))
  const started = await firstLine(child, exited).catch((error) => {
    child.kill('SIGKILL')
    throw error
  })
  return {
    name,
    identity: started.identity,
    pid: child.pid,
    exited,
    on: (listener) => child.on('message', listener),
    send: (message) => child.connected && child.send(message, () => undefined),
    kill: (signal) => child.kill(signal),
    rssMb: () => rssMbOf(child.pid),
    /** Sums of its counters by metric and labels, as `name{label="value",...}`. */
    metrics: () => readMetrics(started.http),
    /** Stops it in order; one that doesn't end within a few seconds is killed. */
    async stop() {
      child.kill('SIGTERM')
      const late = setTimeout(killAtExit, 15_000)
      await exited
      clearTimeout(late)
    },
  }
}

/** Settings of whoever runs the benchmark are not those of the replicas. */
const cleanEnv = () =>
  Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !/^(PHASELOCK_|MONGODB_URI$|POD_NAME$|npm_|NODE_OPTIONS$)/.test(name),
    ),
  )

async function firstLine(child, exited) {
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(), STARTS_WITHIN_MS)
  try {
    const [line] = await Promise.race([
      once(createInterface({ input: child.stdout }), 'line', { signal: late.signal }),
      exited.then((how) => {
        throw new Error(`a replica ended before it had started (${how}); its error stands above`)
      }),
    ])
    return JSON.parse(line)
  } finally {
    clearTimeout(timer)
  }
}

/** Resident memory as the system counts it. */
export async function rssMbOf(pid) {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => undefined)
  if (status) return Number(/VmRSS:\s+(\d+)/.exec(status)[1]) / 1_024
  const { stdout } = await run('ps', ['-o', 'rss=', '-p', String(pid)])
  return Number(stdout.trim()) / 1_024
}

async function readMetrics(http) {
  const text = await (await fetch(`${http}/metrics`)).text()
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  )
}

/** The sum of a counter over all its labels that contain these. */
export function total(metrics, counter, labels = '') {
  let sum = 0
  for (const [name, value] of metrics) if (name.startsWith(`${counter}{`) && name.includes(labels)) sum += value
  return sum
}
