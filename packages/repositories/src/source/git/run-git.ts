import { type ChildProcessByStdio, spawn } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import { MissingGit } from '../errors.js'

/** The bytes that are kept of git's messages. */
const STDERR_BYTES = 8_192

/** A git command that failed, with its messages. */
export class GitFailed extends Error {
  override readonly name = 'GitFailed'
  constructor(
    readonly command: string,
    readonly code: number | null,
    /** The messages, at most 8 KB. */
    readonly stderr: string,
  ) {
    super(`git ${command}: ${lastLine(stderr) || `exit code ${code}`}`)
  }
}

const lastLine = (text: string): string =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .slice(-2)
    .join('; ')

/** The settings of a git command, which travel in its environment: arguments can be read by every user of the machine. */
export type GitConfig = Readonly<Record<string, string>>

/**
 * The environment of git: nothing of the user's configuration, no prompt, no program of git's that runs others. `GIT_*` variables of this
 * process are left out, because they would point git elsewhere, or trace tokens into a file.
 */
export function gitEnvironment(config: GitConfig): NodeJS.ProcessEnv {
  const inherited = Object.entries(process.env).filter(([name]) => !/^(GIT_|SSH_ASKPASS)/.test(name))
  const settings: GitConfig = {
    'protocol.allow': 'never',
    'protocol.https.allow': 'always',
    'protocol.http.allow': 'always',
    'protocol.ssh.allow': 'always',
    'protocol.file.allow': 'always',
    'core.hooksPath': '/dev/null',
    'credential.helper': '',
    // A transfer that stalls for a minute has failed.
    'http.lowSpeedLimit': '1000',
    'http.lowSpeedTime': '60',
    // A small fetch is kept as a pack too, which is renamed into place whole: one that is cut off leaves no commit without its blobs.
    'fetch.unpackLimit': '1',
    // Never git's own background work: the cache is bounded here.
    'gc.auto': '0',
    'maintenance.auto': 'false',
    ...config,
  }
  const numbered = Object.entries(settings).flatMap(([key, value], i) => [
    [`GIT_CONFIG_KEY_${i}`, key],
    [`GIT_CONFIG_VALUE_${i}`, value],
  ])
  return {
    ...Object.fromEntries(inherited),
    ...Object.fromEntries(numbered),
    GIT_CONFIG_COUNT: String(Object.keys(settings).length),
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_TERMINAL_PROMPT: '0',
    GIT_ASKPASS: 'true',
    GIT_SSH_COMMAND: 'ssh -oBatchMode=yes -oConnectTimeout=15 -oServerAliveInterval=15',
    LC_ALL: 'C',
  }
}

/** One running git command. */
export interface RunningGit {
  readonly stdin: Writable
  readonly stdout: Readable
  /** Resolves when it has ended well. @throws GitFailed, MissingGit, the signal's reason */
  readonly ended: Promise<void>
  /** Ends it, and what it has started. */
  kill(): void
}

export interface GitCommand {
  readonly args: readonly string[]
  readonly folder?: string | undefined
  readonly config?: GitConfig | undefined
  readonly signal: AbortSignal
}

/** Starts git in a process group of its own, so that its helpers end with it. */
export function startGit({ args, folder, config = {}, signal }: GitCommand): RunningGit {
  signal.throwIfAborted()
  const child: ChildProcessByStdio<Writable, Readable, Readable> = spawn('git', args, {
    cwd: folder ?? '/',
    env: { ...gitEnvironment(config), ...(folder === undefined ? {} : { GIT_DIR: folder }) },
    stdio: ['pipe', 'pipe', 'pipe'],
    detached: true,
  })
  const kill = () => {
    if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
    try {
      process.kill(-child.pid, 'SIGKILL')
    } catch {
      child.kill('SIGKILL')
    }
  }
  let stderr = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-STDERR_BYTES)
  })
  // A command that ends early closes the pipe; its exit code says why.
  child.stdin.on('error', () => {})
  const ended = new Promise<void>((resolve, reject) => {
    signal.addEventListener('abort', kill, { once: true })
    child.once('error', (error: NodeJS.ErrnoException) => {
      signal.removeEventListener('abort', kill)
      reject(error.code === 'ENOENT' ? new MissingGit({ cause: error }) : error)
    })
    child.once('close', (code) => {
      signal.removeEventListener('abort', kill)
      if (signal.aborted) reject(signal.reason)
      else if (code === 0) resolve()
      else reject(new GitFailed(args[0] ?? '', code, stderr))
    })
  })
  // The reader of its output gets the error there; until then it isn't an unhandled one.
  ended.catch(() => {})
  return { stdin: child.stdin, stdout: child.stdout, ended, kill }
}

/** The output of a short git command, at most 4 MB of it. */
export async function gitText(command: GitCommand): Promise<string> {
  const running = startGit(command)
  running.stdin.end()
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of running.stdout as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size <= 4_194_304) chunks.push(chunk)
  }
  await running.ended
  return Buffer.concat(chunks).toString('utf8')
}
