import { type Dirent, readdirSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { type LocalServer, NotHere } from '../engine/index.js'
import { homeOf } from './home.js'
import { commandsOfBinaries, isExecutableFile } from './mongod-binary.js'

/**
 * A binary that mongodb-memory-server has downloaded before, for whatever project: `mongod-x64-debian-8.2.1` in one of its cache
 * folders. The version named by MONGOMS_VERSION comes first, then the newest. We look it up ourselves, read-only: the library's own
 * search deletes files that it considers damaged, and works only if the package is installed.
 */
export function cachedMongod(env: NodeJS.ProcessEnv): LocalServer {
  return {
    source: 'cached-mongod',
    name: 'mongod cached by mongodb-memory-server',
    async commands() {
      const folders = cacheFolders(env)
      const wanted = env['MONGOMS_VERSION']
      const found = folders
        .flatMap(binariesIn)
        .sort((a, b) => preference(b, wanted) - preference(a, wanted) || newer(a, b))
      if (found.length === 0) throw new NotHere(`there is none in ${folders.join(', ')}`)
      return await commandsOfBinaries(found.slice(0, 3).map(({ path }) => path))
    },
  }
}

interface CachedBinary {
  path: string
  version: string
}

function cacheFolders(env: NodeJS.ProcessEnv): string[] {
  const named = env['MONGOMS_DOWNLOAD_DIR']
  const inModules: string[] = []
  for (let folder = env['INIT_CWD'] || process.cwd(); ; folder = dirname(folder)) {
    inModules.push(join(folder, 'node_modules/.cache/mongodb-memory-server'))
    if (folder === dirname(folder)) break
  }
  const home = homeOf(env)
  const atHome = home ? [join(home, '.cache/mongodb-binaries')] : []
  return [...(named ? [resolve(named)] : []), ...atHome, ...inModules.slice(0, 3)]
}

function binariesIn(folder: string): CachedBinary[] {
  const entries = list(folder)
  const names = new Set(entries.map((entry) => entry.name))
  return entries.flatMap(({ name }) => {
    const version = /^mongod-.*?(\d+\.\d+\.\d+)$/.exec(name)?.[1]
    const path = join(folder, name)
    // A lock file means that the binary is still being unpacked.
    return version && !names.has(`${version}.lock`) && isExecutableFile(path) ? [{ path, version }] : []
  })
}

function list(folder: string): Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
  } catch {
    return []
  }
}

const preference = (binary: CachedBinary, wanted: string | undefined) => (binary.version === wanted ? 1 : 0)
const newer = (a: CachedBinary, b: CachedBinary) => b.version.localeCompare(a.version, 'en', { numeric: true })
