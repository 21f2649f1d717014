import { execFile } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Log } from '../engine/index.js'
import { homeOf } from './home.js'

/** A C library besides the system's: `loader` is put before a command to run it with that library. */
export interface PrivateGlibc {
  loader: string[]
}

interface Distribution {
  suite: string
  keyring: string
  /** Matches its mirrors in the apt sources; the rest of the address, such as a proxy's, stays. */
  mirror: RegExp
  fallback: string
}

const PACKAGES = ['libc6', 'libstdc++6', 'libgcc-s1']
const DEBIAN: Distribution = {
  suite: 'trixie',
  keyring: '/usr/share/keyrings/debian-archive-keyring.gpg',
  mirror: /https?:\/\/[^\s\]]*\/debian(?=\/?(\s|$))/,
  fallback: 'http://deb.debian.org/debian',
}
const UBUNTU: Distribution = {
  suite: 'noble',
  keyring: '/usr/share/keyrings/ubuntu-archive-keyring.gpg',
  mirror: /https?:\/\/[^\s\]]*\/ubuntu(-ports)?(?=\/?(\s|$))/,
  fallback: process.arch === 'arm64' ? 'http://ports.ubuntu.com/ubuntu-ports' : 'http://archive.ubuntu.com/ubuntu',
}
const LIBRARIES: Partial<Record<NodeJS.Architecture, { folder: string; loader: string }>> = {
  x64: { folder: 'usr/lib/x86_64-linux-gnu', loader: 'ld-linux-x86-64.so.2' },
  arm64: { folder: 'usr/lib/aarch64-linux-gnu', loader: 'ld-linux-aarch64.so.1' },
}

/**
 * The folder for data that projects can share: `$XDG_CACHE_HOME/phaselock` or `~/.cache/phaselock`.
 * @throws Error if there is no such folder, or it isn't writable
 */
async function cacheFolder(env: NodeJS.ProcessEnv): Promise<string> {
  const home = homeOf(env)
  const cache = env['XDG_CACHE_HOME'] || (home && join(home, '.cache'))
  const unusable = (where: string, said: string) =>
    new Error(`expected a writable folder for newer C libraries${where}, got ${said}; set XDG_CACHE_HOME to one`)
  if (!cache) throw unusable('', 'none: HOME is empty')
  const folder = join(cache, 'phaselock')
  await mkdir(folder, { recursive: true }).catch((error: Error) => {
    throw unusable(` at ${folder}`, error.message)
  })
  return folder
}

/**
 * Newer C and C++ libraries than the system's, for one program: fetched once per user with apt (16 MB; no root; nothing is installed
 * and the system is not changed; apt checks the signatures). They are unpacked elsewhere and moved into place in one step, so that an
 * incomplete set is never used and two processes may do it concurrently.
 * @throws Error if this isn't Debian or Ubuntu, or apt can't reach a mirror
 */
export async function newerGlibc(env: NodeJS.ProcessEnv, log: Log): Promise<PrivateGlibc> {
  const libraries = LIBRARIES[process.arch]
  if (!libraries) throw new Error(`no newer glibc is known for ${process.arch}`)
  const distribution = existsSync(DEBIAN.keyring) ? DEBIAN : UBUNTU
  const target = join(await cacheFolder(env), `glibc-${distribution.suite}-${process.arch}`)
  const folder = join(target, libraries.folder)
  const loader = join(folder, libraries.loader)
  if (!existsSync(loader)) {
    log('fetching newer C libraries for the embedded engine (16 MB, once)', { from: distribution.suite, to: target })
    await fetchLibraries(distribution, target, libraries, env)
  }
  return { loader: [loader, '--library-path', folder] }
}

async function fetchLibraries(
  { suite, keyring, mirror, fallback }: Distribution,
  target: string,
  { folder, loader }: { folder: string; loader: string },
  env: NodeJS.ProcessEnv,
): Promise<void> {
  if (!existsSync(keyring)) {
    throw new Error(`a newer glibc can be fetched on Debian and Ubuntu only, and ${keyring} is missing`)
  }
  const work = await mkdtemp(`${target}.tmp-`)
  try {
    for (const made of ['lists/partial', 'cache/archives/partial', 'parts', 'unpacked']) {
      await mkdir(join(work, made), { recursive: true })
    }
    const sources = join(work, 'sources.list')
    await writeFile(sources, `deb [signed-by=${keyring}] ${findMirror(mirror) ?? fallback} ${suite} main\n`)
    const settings = [
      `Dir::Etc::SourceList=${sources}`,
      `Dir::Etc::SourceParts=${join(work, 'parts')}`,
      `Dir::State::Lists=${join(work, 'lists')}`,
      `Dir::Cache=${join(work, 'cache')}`,
      'APT::Sandbox::User=root',
      'Acquire::Retries=2',
      'Acquire::http::Timeout=20',
    ].flatMap((setting) => ['-o', setting])
    await run('apt-get', ['-qq', ...settings, 'update'], work, env)
    await run('apt-get', ['-qq', ...settings, 'download', ...PACKAGES], work, env)
    for (const name of readdirSync(work).filter((file) => file.endsWith('.deb'))) {
      await run('dpkg-deb', ['-x', name, 'unpacked'], work, env)
    }
    const unpacked = join(work, 'unpacked')
    for (const needed of [loader, 'libc.so.6', 'libstdc++.so.6', 'libgcc_s.so.1']) {
      if (!existsSync(join(unpacked, folder, needed)))
        throw new Error(`the packages of ${suite} don't contain ${folder}/${needed}`)
    }
    await rename(unpacked, target).catch((error: NodeJS.ErrnoException) => {
      // Another process was faster. Its set is complete, or it wouldn't exist.
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error
    })
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}

/** The mirror that the system's own apt sources use. */
function findMirror(pattern: RegExp): string | undefined {
  const folder = '/etc/apt/sources.list.d'
  const parts = existsSync(folder) ? readdirSync(folder).map((name) => join(folder, name)) : []
  for (const file of ['/etc/apt/sources.list', ...parts.filter((name) => /\.(sources|list)$/.test(name))]) {
    const text = existsSync(file) ? readFileSync(file, 'utf8').replace(/^\s*#.*$/gm, '') : ''
    const match = pattern.exec(text)
    if (match) return match[0]
  }
  return undefined
}

async function run(command: string, args: string[], cwd: string, env: NodeJS.ProcessEnv): Promise<void> {
  await promisify(execFile)(command, args, { cwd, env: { ...env, LC_ALL: 'C' }, timeout: 180_000 }).catch(
    (error: Error & { stderr?: string }) => {
      const said = (error.stderr?.trim() || error.message).split('\n').slice(0, 3).join(' | ')
      throw new Error(`a newer glibc can't be fetched: ${command}: ${said}`)
    },
  )
}
