import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { described, ReplicaProcess } from '../dist/cli/processes/replica-process.js'

const CLI = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))
const STARTS_WITHIN_MS = 30_000
const ENDS_WITHIN_MS = 15_000
const run = promisify(execFile)

/**
 * One replica as users run it: `phaselock start` with a module of lifecycles, in a process of its own. The module may talk
 * with the benchmark over `process.send` and `process.on('message')`.
 * @param {{ uri: string, database: string, lifecycles: string, name?: string, http?: boolean, nodeOptions?: string[],
 *   env?: Record<string, string>, flags?: string[], logLevel?: string }} options `lifecycles`: the file's name in replicas/; `http`: with the web server, for
 *   `metrics`
 * @returns once it has started
 */
export async function startReplica({ uri, database, lifecycles, name = 'bench', logLevel = 'error', ...more }) {
  const module = fileURLToPath(new URL(`./replicas/${lifecycles}`, import.meta.url))
  const { http = false, nodeOptions = [], env = {}, flags: others = [] } = more
  const flags = [
    '--uri',
    uri,
    '--database',
    database,
    '--lifecycles',
    module,
    '--name',
    name,
    '--log-level',
    logLevel,
    ...others,
  ]
  const replica = new BenchReplica(CLI, {
    args: ['start', '--json', ...flags, ...(http ? ['--http', '0', '--http-host', '127.0.0.1'] : [])],
    env: { ...cleanEnv(), ...env },
    execArgv: nodeOptions,
    output: 'pipe',
    diesWithUs: true,
  })
  replica.name = name
  await replica.started()
  return replica
}

class BenchReplica extends ReplicaProcess {
  #listeners = []
  #http

  /** Resolves once it has started. */
  async started() {
    try {
      this.#http = (await firstLine(this)).http
    } catch (error) {
      this.kill()
      throw error
    }
  }

  /** @param listener told of what its module sends */
  on(listener) {
    this.#listeners.push(listener)
  }

  /** Sums of its counters by metric and labels, as `name{label="value",...}`. */
  metrics() {
    return readMetrics(this.#http)
  }

  rssMb() {
    return rssMbOf(this.pid)
  }

  /** Stops it in order; one that doesn't end within a few seconds is killed. */
  async end() {
    this.stop()
    const late = setTimeout(() => this.kill(), ENDS_WITHIN_MS)
    await this.ended
    clearTimeout(late)
  }

  received(message) {
    for (const listener of this.#listeners) listener(message)
  }
}

/** Settings of whoever runs the benchmark are not those of the replicas. */
const cleanEnv = () =>
  Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !/^(PHASELOCK_|MONGODB_URI$|POD_NAME$|npm_|NODE_OPTIONS$)/.test(name),
    ),
  )

async function firstLine({ output, ended }) {
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(), STARTS_WITHIN_MS)
  try {
    const [line] = await Promise.race([
      once(createInterface({ input: output }), 'line', { signal: late.signal }),
      ended.then((end) => {
        throw new Error(`a replica ended before it had started (${described(end)}); its error stands above`)
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
