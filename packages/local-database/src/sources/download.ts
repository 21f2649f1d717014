import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { type LocalServer, type Log, NotHere, programPath } from '../engine/index.js'
import { findPackage } from './find-package.js'
import { commandOfBinary } from './mongod-binary.js'

const PACKAGES = ['mongodb-memory-server', 'mongodb-memory-server-core']
const DOWNLOAD_WITHIN_MS = 10 * 60_000

/**
 * The mongod that mongodb-memory-server downloads. Its settings (MONGOMS_VERSION, MONGOMS_DOWNLOAD_MIRROR and the like) apply. It
 * runs in its own process, which keeps the library, and its use of the environment, out of the replica.
 */
export function downloadedMongod(env: NodeJS.ProcessEnv, roots: string[], log: Log): LocalServer {
  return {
    source: 'download',
    name: "mongodb-memory-server's download",
    async commands() {
      const main = PACKAGES.map((name) => findPackage(name, roots)).find((path) => path !== undefined)
      if (!main) throw new NotHere('mongodb-memory-server is not installed')
      log('downloading a mongod with mongodb-memory-server (this can take minutes)')
      return [await commandOfBinary(await download(main, env))]
    },
  }
}

async function download(main: string, env: NodeJS.ProcessEnv): Promise<string> {
  const { MONGOMS_SYSTEM_BINARY: _tried, NODE_OPTIONS: _ours, ...rest } = env
  const program = [programPath('sources/download-program'), main]
  const { stdout } = await promisify(execFile)(process.execPath, program, {
    env: rest,
    timeout: DOWNLOAD_WITHIN_MS,
  }).catch((error: Error & { stderr?: string; killed?: boolean }) => {
    if (error.killed) throw new Error(`not finished after ${DOWNLOAD_WITHIN_MS / 60_000} minutes`)
    const said = error.stderr?.trim().split('\n').slice(0, 3).join(' | ') || error.message
    const isFolder = /EACCES|EROFS|ENOENT|EPERM|uv_os_homedir|ENOSPC/.test(said)
    throw new Error(isFolder ? `${said}; set MONGOMS_DOWNLOAD_DIR to a writable folder` : said)
  })
  const path = /^path=(.+)$/m.exec(stdout)?.[1]
  if (!path) throw new Error(`it printed no path: ${stdout.trim().slice(0, 200)}`)
  return path
}
