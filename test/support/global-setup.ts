/**
 * One MongoDB server for the whole run, from the same code that users run: MONGODB_URI if set, else a local engine with its data in a
 * temporary folder. Its keeper watches this process: when the run ends, also by Ctrl-C or `kill -9`, engine and data go within 5 s.
 * It loads the built package: Jest turns this file into CommonJS, which can't load the sources (they are ES modules).
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { mkdtemp, statfs } from 'node:fs/promises'
import { freemem, tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = resolve(fileURLToPath(import.meta.url), '../../..')
/** The environment variable that names the run's server to the tests. */
const TEST_URI = 'PHASELOCK_TEST_MONGODB_URI'
/** And the one that names a folder which goes with the run, however it ends: for tests that make folders of their own. */
const TEST_FOLDER = 'PHASELOCK_TEST_FOLDER'
/** And the process that the run ends with, for what is started later by any worker and shared by all. */
const TEST_RUN = 'PHASELOCK_TEST_RUN'
const MEMORY = '/dev/shm'
/** Several times what the databases of `npm test` take. */
const MEMORY_NEEDED = 4 * 1024 ** 3

export default async function globalSetup(
  _: unknown,
  { globals: { databaseInMemory } }: { globals: { databaseInMemory?: boolean } },
): Promise<void> {
  const { connectDatabase } = await import(buildIfStale())
  const dataDir = await mkdtemp(join(databaseInMemory ? await memoryFolder() : tmpdir(), 'phaselock-test-'))
  const connection = await connectDatabase({
    dataDir,
    env: { ...process.env, KUBERNETES_SERVICE_HOST: '' }, // a CI may run in a pod
    temporary: true,
    log: (message: string) =>
      /fetching|downloading|no database from embedded/.test(message) && process.stderr.write(`${message}\n`),
  })
  process.env[TEST_URI] = connection.uri
  process.env[TEST_FOLDER] = dataDir
  process.env[TEST_RUN] = String(process.pid)
  Object.assign(globalThis, { phaselockTestRun: { connection, dataDir } })
}

/**
 * Where files are kept in memory, if there is room. Nearly each test creates a database of its own, and creating one costs twice as much
 * on a disk, which has to confirm it.
 */
async function memoryFolder(): Promise<string> {
  const room = await statfs(MEMORY).then(
    ({ bavail, bsize }) => bavail * bsize,
    () => 0,
  )
  return Math.min(room, freemem()) >= MEMORY_NEEDED ? MEMORY : tmpdir()
}

/** What is built for the database of a run: sources, where to, and their project. */
const BUILDS = [
  { sources: ['packages/local-database/src'], to: 'packages/local-database/dist', project: 'packages/local-database' },
  { sources: ['src/database', 'src/time'], to: 'dist', project: 'tsconfig.build.json' },
]

/**
 * The main file of the built `phaselock/database`. What is missing or older than its sources is built first (`npm test` has built it
 * already; a single test file run by hand may not have).
 */
function buildIfStale(): string {
  const main = join(root, 'dist/database/index.js')
  for (const { sources, to, project } of BUILDS) {
    if (!sources.some((source) => isNewer(source, to))) continue
    const tsc = [join(root, 'node_modules/typescript/bin/tsc'), '-p', project]
    const { stdout } = spawnSync(process.execPath, tsc, { cwd: root, encoding: 'utf8' })
    if (!existsSync(join(root, to))) throw new Error(`expected a build in ${to}, got:\n${stdout}`)
  }
  return main
}

/** Whether a source, a file or a folder, is newer than what it was built to. */
function isNewer(source: string, to: string): boolean {
  if (statSync(join(root, source)).isDirectory())
    return readdirSync(join(root, source)).some((name) => isNewer(join(source, name), to))
  if (!source.endsWith('.ts')) return false
  const built = join(root, source.replace(/^.*?src/, to)).replace(/\.ts$/, '.js')
  return !existsSync(built) || statSync(built).mtimeMs < statSync(join(root, source)).mtimeMs
}
