import type { LocalServer, Log } from '../engine/index.js'
import { cachedMongod } from './cached-mongod.js'
import { downloadedMongod } from './download.js'
import { embeddedEngine } from './embedded.js'
import { packageRoots } from './find-package.js'
import { mongodInPath, namedMongod } from './system-mongod.js'

/**
 * The ways to get a server on this machine, in the order of attempts. Nothing is looked up, loaded or fetched before its
 * turn.
 */
export function localServers(env: NodeJS.ProcessEnv, log: Log, roots: string[] = packageRoots()): LocalServer[] {
  return [
    namedMongod(env),
    mongodInPath(env),
    cachedMongod(env),
    embeddedEngine(env, roots, log),
    downloadedMongod(env, roots, log),
  ]
}
