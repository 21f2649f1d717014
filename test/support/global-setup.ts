/**
 * One MongoDB server for the whole run, from the same code that users run: MONGODB_URI if set, else a local engine with its data in a
 * temporary folder. Its keeper watches this process: when the run ends, also by Ctrl-C or `kill -9`, engine and data go within 5 s.
 * It loads the built package: Jest turns this file into CommonJS, which can't load the sources (they are ES modules).
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = resolve(fileURLToPath(import.meta.url), '../../..')
/** The environment variable that names the run's server to the tests. */
const TEST_URI = 'PHASELOCK_TEST_MONGODB_URI'
/** And the one that names a folder which goes with the run, however it ends: for tests that make folders of their own. */
const TEST_FOLDER = 'PHASELOCK_TEST_FOLDER'
/** And the process that the run ends with, for what is started later by any worker and shared by all. */
const TEST_RUN = 'PHASELOCK_TEST_RUN'

export default async function globalSetup(): Promise<void> {
  const index = buildIfStale('src/database', 'src/time')
  const { connectDatabase } = await import(index)
  const dataDir = await mkdtemp(join(tmpdir(), 'phaselock-test-'))
  const connection = await connectDatabase({
    dataDir,
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
 * The main file of the built database package. The engine's programs are started from `dist`, so it is built here when it is missing or older
 * than a source of the given folders (`npm test` has built it already; a single test file run by hand may not have).
 */
function buildIfStale(...folders: string[]): string {
  const built = join(root, 'dist/database/index.js')
  const stale = !existsSync(built) || folders.some((folder) => isNewer(join(root, folder)))
  if (stale) {
    const tsc = join(root, 'node_modules/typescript/bin/tsc')
    const { stdout } = spawnSync(process.execPath, [tsc, '-p', 'tsconfig.build.json'], { cwd: root, encoding: 'utf8' })
    if (!existsSync(built)) throw new Error(`expected a build in dist, got:\n${stdout}`)
  }
  return built
}

/** Whether a source is newer than what it was built to. */
function isNewer(source: string): boolean {
  if (statSync(source).isDirectory()) return readdirSync(source).some((name) => isNewer(join(source, name)))
  if (!source.endsWith('.ts')) return false
  const built = source.replace(join(root, 'src'), join(root, 'dist')).replace(/\.ts$/, '.js')
  return !existsSync(built) || statSync(built).mtimeMs < statSync(source).mtimeMs
}
