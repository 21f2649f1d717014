import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect } from '@jest/globals'
import { embeddedEngine } from '../../packages/local-database/src/sources/embedded.js'
import { packageRoots } from '../../packages/local-database/src/sources/find-package.js'
import { connectDatabase, type DatabaseConnection } from '../../src/database/index.js'
import { eventually } from './database.js'

export interface RunningReplica {
  process: ChildProcess
  uri: string
  source: string
  /** What it logged. */
  logged: string[]
}

/** The keeper and engine that `engine.json` names. */
export interface EnginePids {
  port: number
  keeper: number
  engine: number
}

/** A folder for a local database, and what tests do with it; each test ends with nothing running and the folder gone. */
export class LocalDatabase {
  private readonly connections: DatabaseConnection[] = []
  private readonly replicas: ChildProcess[] = []
  readonly logged: string[] = []
  readonly log = (message: string) => void this.logged.push(message)

  constructor(
    readonly root: string,
    /** A home of the test's own, and a broken mongod first in PATH, so that none of the machine's is used. The fetched C libraries are the user's. */
    readonly env: NodeJS.ProcessEnv,
  ) {}

  get dataDir(): string {
    return join(this.root, 'data')
  }

  async connect(options: Parameters<typeof connectDatabase>[0] = {}): Promise<DatabaseConnection> {
    return this.keep(await connectDatabase({ dataDir: this.dataDir, env: this.env, log: this.log, ...options }))
  }

  keep(connection: DatabaseConnection): DatabaseConnection {
    this.connections.push(connection)
    return connection
  }

  /** A replica in a process of its own. */
  async replica(): Promise<RunningReplica> {
    const program = fileURLToPath(new URL('database-replica.mjs', import.meta.url))
    const child = spawn(process.execPath, [program, this.dataDir], {
      env: this.env,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.replicas.push(child)
    const logged: string[] = []
    createInterface({ input: child.stderr }).on('line', (line) => logged.push(line))
    const [line] = await Promise.race([
      once(createInterface({ input: child.stdout }), 'line'),
      once(child, 'exit').then(() => Promise.reject(new Error(`the replica ended: ${logged.join('\n')}`))),
    ])
    return { process: child, ...JSON.parse(String(line)), logged }
  }

  async state(): Promise<{
    port: number
    source: string
    engine?: { pid: number }
    keeper?: { process: { pid: number }; controlPort: number; secret: string }
  }> {
    return JSON.parse(await readFile(join(this.dataDir, 'engine.json'), 'utf8'))
  }

  async pids(): Promise<EnginePids> {
    const { port, keeper, engine } = await this.state()
    return { port, keeper: keeper!.process.pid, engine: engine!.pid }
  }

  /** An executable shell script. */
  async script(path: string, text: string): Promise<string> {
    const full = join(this.root, path)
    await mkdir(join(full, '..'), { recursive: true })
    await writeFile(full, `#!/bin/sh\n${text}\n`)
    await chmod(full, 0o755)
    return full
  }

  /** A stand-in for a mongod binary that runs the embedded engine. */
  async fakeMongod(path: string, version = '8.0.0'): Promise<string> {
    const [server] = await embeddedEngine(process.env, packageRoots(), () => undefined).commands()
    const quoted = [server!.command, ...server!.args].map((part) => `'${part}'`).join(' ')
    const variables = Object.entries(server!.env ?? {}).map(([name, value]) => `${name}='${value}' `)
    return await this.script(
      path,
      `[ "$1" = --version ] && { echo 'db version v${version}'; exit 0; }\nexec /usr/bin/env ${variables.join('')}${quoted} "$@"`,
    )
  }

  async end(): Promise<void> {
    for (const replica of this.replicas) replica.kill('SIGKILL')
    await Promise.all(this.connections.map((connection) => connection.close()))
    const { keeper } = await this.state().catch(() => ({ keeper: undefined }))
    if (keeper) await eventually(() => expect(isAlive(keeper.process.pid)).toBe(false))
    await rm(this.root, { recursive: true, force: true, maxRetries: 10 })
  }
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

/** Gives each test of the enclosing `describe` a local database's folder of its own. */
export function useLocalDatabase(): () => LocalDatabase {
  let current: LocalDatabase | undefined
  beforeEach(async () => {
    const root = await mkdtemp(join(process.env['PHASELOCK_TEST_FOLDER'] ?? tmpdir(), 'local-'))
    const { HOME, XDG_CACHE_HOME, PATH } = process.env
    const cache = XDG_CACHE_HOME || join(HOME || homedir(), '.cache')
    const env = { HOME: root, INIT_CWD: root, XDG_CACHE_HOME: cache, PATH: `${root}/first:${PATH}` }
    current = new LocalDatabase(root, env)
    await current.script('first/mongod', 'echo "not for tests" >&2; exit 1')
  })
  afterEach(async () => {
    await current?.end()
    current = undefined
  })
  return () => current!
}
