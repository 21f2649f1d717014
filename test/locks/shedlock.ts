import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { access, cp, mkdir, readFile, rename, rm } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { HolderProcess } from './holder-process.js'

const run = promisify(execFile)
const PROJECT = fileURLToPath(new URL('java', import.meta.url))
const SOURCES = ['pom.xml', 'src/main/java/phaselock/ShedLockHolder.java']
const BUILD_WITHIN_MS = 240_000
/** Nothing here is worth a second of the just-in-time compiler's time. */
const JVM = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xmx256m']

/** There is no Java 17 or no Maven here, or Maven can't have the packages. */
export class NoShedLock extends Error {
  override readonly name = 'NoShedLock'
}

/**
 * The class path of the Java program, built once for each version of its sources, in the user's cache folder.
 * @throws NoShedLock
 */
export async function shedLockClassPath(): Promise<string> {
  const folder = join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'phaselock-tests', await version())
  if (!(await exists(join(folder, 'classpath.txt')))) await build(folder)
  return `${join(folder, 'target/classes')}:${(await readFile(join(folder, 'classpath.txt'), 'utf8')).trim()}`
}

/**
 * The real ShedLock as another process with the same locks, on the server of this URL.
 * @param zone of the JVM; default that of this machine
 * @param time of PostgreSQL's provider: `usingDbTime()`, as it comes, or `withTimeZone(UTC)`
 */
export function startShedLock(
  classPath: string,
  url: string,
  { zone, time = 'db' }: { zone?: string; time?: 'db' | 'jvm' | 'utc' } = {},
): Promise<HolderProcess> {
  const jvm = zone === undefined ? JVM : [...JVM, `-Duser.timezone=${zone}`]
  return HolderProcess.of('java', [...jvm, '-cp', classPath, 'phaselock.ShedLockHolder', url, time])
}

async function version(): Promise<string> {
  const hash = createHash('sha256')
  for (const path of SOURCES) hash.update(await readFile(join(PROJECT, path)))
  return `shedlock-${hash.digest('hex').slice(0, 16)}`
}

async function build(folder: string): Promise<void> {
  const making = `${folder}.${process.pid}`
  await mkdir(making, { recursive: true })
  try {
    await cp(PROJECT, making, { recursive: true })
    const goals = ['compile', 'dependency:build-classpath', '-Dmdep.outputFile=made.txt']
    const maven = () => run('mvn', ['-B', '-q', ...goals], { cwd: making, timeout: BUILD_WITHIN_MS })
    // A repository may fail for a moment; what was downloaded stays.
    await maven().catch((error) => (error.code === 'ENOENT' ? Promise.reject(error) : maven()))
    await rename(join(making, 'made.txt'), join(making, 'classpath.txt'))
    await rm(folder, { recursive: true, force: true })
    await rename(making, folder)
  } catch (error) {
    const { code, message, stdout = '' } = error as { code?: unknown; message: string; stdout?: string }
    const why = code === 'ENOENT' ? 'mvn is not installed' : `mvn failed: ${message}\n${stdout.slice(-2_000)}`
    throw new NoShedLock(`expected Java 17 and Maven, for the real ShedLock: ${why}`)
  } finally {
    await rm(making, { recursive: true, force: true })
  }
}

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  )
