import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { sleep } from '../time.js'
import { identify, isRunning, type ProcessIdentity, signalProcess } from './process-identity.js'

/** The command that starts a server with mongod's command line. Options are appended to `args`. */
export interface ServerCommand {
  command: string
  args: string[]
  env?: Record<string, string> | undefined
}

/** A server that answers on its port. */
export interface EngineProcess {
  identity: ProcessIdentity
  /** Resolves once the process is gone, for whatever reason, with the way it ended. */
  exited: Promise<string>
  /** Sends SIGTERM, then SIGKILL if it takes longer than `patienceMs` (the journal makes that safe). Resolves once it is gone. */
  stop(patienceMs: number): Promise<void>
}

/** The server ended, or didn't get ready in time; `said` is the end of its output. */
export class EngineStartFailed extends Error {
  override readonly name = 'EngineStartFailed'
  constructor(
    readonly how: string,
    readonly said: string,
    readonly portTaken: boolean,
  ) {
    super(said ? `${how}: ${said}` : how)
  }
}

/**
 * Runs the server so that it can't outlive us. The shell waits for the server, and ends it when our end of pipe 3 closes; the
 * kernel closes that when we are killed. It reports the server's process id over pipe 4.
 */
const WATCHDOG = `
"$@" 3<&- 4>&- & server=$!
echo "$server" >&4; exec 4>&-
{ read -r never <&3; kill -TERM "$server"; } 2>/dev/null & watch=$!
exec 3<&-
wait "$server"; code=$?
kill "$watch" 2>/dev/null
exit "$code"`

/** The line that mongod (and the embedded server) prints when it accepts connections. */
const READY = /Waiting for connections/
const EXIT_PORT_TAKEN = 48
/** The time to wait for the rest of a server's output after it ended. */
const LAST_WORDS_MS = 500

/**
 * Starts the server on a data folder and a loopback port and waits until it accepts connections. Each line it prints goes to `onLine`.
 * @throws EngineStartFailed
 */
export async function startEngineProcess(
  server: ServerCommand,
  where: { data: string; port: number },
  onLine: (line: string) => void,
  readyWithinMs: number,
): Promise<EngineProcess> {
  const options = ['--dbpath', where.data, '--port', String(where.port), '--bind_ip', '127.0.0.1']
  const shell = spawn('/bin/sh', ['-c', WATCHDOG, 'sh', server.command, ...server.args, ...options], {
    stdio: ['ignore', 'pipe', 'pipe', 'pipe', 'pipe'],
    env: { ...process.env, ...server.env },
    cwd: where.data,
  })
  const leash = shell.stdio[3] as Writable
  leash.on('error', () => undefined)
  const lines: string[] = []
  const exited = exitOf(shell)
  const ready = new Promise<'ready'>((resolve) => {
    for (const output of [shell.stdout!, shell.stderr!]) {
      createInterface({ input: output }).on('line', (line) => {
        onLine(line)
        if (lines.push(line) > 50) lines.shift()
        if (READY.test(line)) resolve('ready')
      })
    }
  })
  const serverPid = await firstLine(shell.stdio[4] as Readable)
  const identity = identify(Number(serverPid))
  const timeout = new AbortController()
  const late = sleep(readyWithinMs, { signal: timeout.signal }).then(() => `not ready after ${readyWithinMs / 1000} s`)
  const first = await Promise.race([ready, exited, late])
  timeout.abort()
  if (first !== 'ready' || !identity) {
    if (identity) signalProcess(identity, 'SIGKILL')
    leash.end()
    await Promise.race([once(shell, 'close'), sleep(LAST_WORDS_MS)])
    const how = first === 'ready' ? 'ended at once' : first
    throw new EngineStartFailed(how, whatItSaid(lines), shell.exitCode === EXIT_PORT_TAKEN)
  }
  return {
    identity,
    exited,
    stop: (patienceMs) => endEngine(identity, patienceMs),
  }
}

/** Ends a server, our own or one that a killed keeper left behind; resolves once it is gone. */
export async function endEngine(engine: ProcessIdentity, patienceMs: number): Promise<void> {
  signalProcess(engine, 'SIGTERM')
  for (let waited = 0; isRunning(engine) && waited < patienceMs; waited += 20) await sleep(20)
  signalProcess(engine, 'SIGKILL')
  while (isRunning(engine)) await sleep(20)
}

function exitOf(shell: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    shell.on('error', (error) => resolve(error.message))
    shell.on('exit', (code, signal) => resolve(signal ? `ended by ${signal}` : `ended with code ${code}`))
  })
}

function firstLine(stream: Readable): Promise<string> {
  return new Promise((resolve) => {
    let text = ''
    stream.on('data', (chunk) => {
      text += chunk
    })
    stream.on('error', () => resolve(text)).on('close', () => resolve(text.trim()))
  })
}

/** The lines worth showing: mongod's JSON log reduced to its messages, errors first; others unchanged. At most 600 characters. */
function whatItSaid(lines: string[]): string {
  const parsed = lines.map((line) => {
    try {
      const entry = JSON.parse(line) as { s?: string; msg?: string; attr?: { error?: unknown } }
      const error = entry.attr?.error
      const detail = error ? `: ${typeof error === 'string' ? error : JSON.stringify(error)}` : ''
      return { serious: entry.s === 'E' || entry.s === 'F', text: `${entry.msg}${detail}`, json: true }
    } catch {
      return { serious: false, text: line.trim(), json: false }
    }
  })
  const serious = parsed.filter((line) => line.serious || !line.json)
  return (serious.length > 0 ? serious : parsed.slice(-3))
    .map((line) => line.text)
    .filter((text) => text !== '')
    .slice(0, 6)
    .join(' | ')
    .slice(0, 600)
}
