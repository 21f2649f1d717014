import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach } from '@jest/globals'
import { BSON } from 'mongodb'
import { eventually } from '../support/database.js'

export const ROOT = fileURLToPath(new URL('../../', import.meta.url))
export const MAIN = join(ROOT, 'dist/cli/main.js')
export const THINGS = fileURLToPath(new URL('fixtures/things.mjs', import.meta.url))

export interface CommandResult {
  readonly code: number | null
  readonly out: string
  readonly err: string
  /** What `--json` printed. */
  json(): never
}

/** A program that runs, and what it has printed so far. */
export class Running {
  out = ''
  err = ''
  readonly exited: Promise<number | null>

  constructor(readonly child: ChildProcess) {
    child.stdout!.setEncoding('utf8').on('data', (text) => {
      this.out += text
    })
    child.stderr!.setEncoding('utf8').on('data', (text) => {
      this.err += text
    })
    this.exited = once(child, 'close').then(([code]) => code)
  }

  /** It and whatever it has started. */
  killAll(): void {
    try {
      process.kill(-this.child.pid!, 'SIGKILL')
    } catch {
      // They have ended.
    }
  }

  /** Waits until it has printed this; fails with what it printed instead. */
  async printed(pattern: RegExp, where: 'out' | 'err' = 'out'): Promise<RegExpExecArray> {
    return eventually(
      () => {
        const match = pattern.exec(this[where])
        if (!match) throw new Error(`expected ${pattern}, got:\n${this.out}\n${this.err}`)
        return match
      },
      { timeoutMs: 100_000 },
    )
  }
}

/** A folder of its own for each test, in which the built command line runs as a user would run it. */
export class CliFolder {
  private readonly running: Running[] = []
  constructor(readonly path: string) {}

  /** Only what is given: nothing of the surrounding environment configures it. */
  start(command: string, args: readonly string[], env: Record<string, string> = {}, cwd = this.path): Running {
    const surrounding = Object.fromEntries(
      Object.entries(process.env).filter(([name]) => !/^(PHASELOCK_|MONGODB_URI|POD_NAME|npm_)/.test(name)),
    )
    const child = spawn(command, [...args], {
      cwd,
      env: { ...surrounding, ...env },
      stdio: ['pipe', 'pipe', 'pipe'],
      detached: true,
    })
    const running = new Running(child)
    this.running.push(running)
    return running
  }

  phaselock(args: readonly string[], env?: Record<string, string>): Running {
    return this.start(process.execPath, [MAIN, ...args], env)
  }

  /** One command from beginning to end. */
  async run(args: readonly string[], env?: Record<string, string>, stdin = ''): Promise<CommandResult> {
    const running = this.phaselock(args, env)
    running.child.stdin!.end(stdin)
    const code = await running.exited
    const { out, err } = running
    return { code, out, err, json: () => BSON.EJSON.parse(out) as never }
  }

  /** So that programs in this folder find the packages that a user would have installed. */
  async linkPackages(): Promise<void> {
    await symlink(join(ROOT, 'node_modules'), join(this.path, 'node_modules'))
  }

  async end(): Promise<void> {
    for (const one of this.running) one.killAll()
    await Promise.all(this.running.map((one) => one.exited))
    await rm(this.path, { recursive: true, force: true, maxRetries: 20, retryDelay: 250 })
  }
}

/** Gives each test of the enclosing `describe` a folder; what it started is ended with it. */
export function useCliFolder(): () => CliFolder {
  let current: CliFolder | undefined
  beforeEach(async () => {
    current = new CliFolder(await mkdtemp(join(process.env['PHASELOCK_TEST_FOLDER'] ?? tmpdir(), 'cli-')))
  })
  afterEach(async () => {
    await current?.end()
    current = undefined
  })
  return () => current!
}
