import { delimiter, join, resolve } from 'node:path'
import { type LocalServer, NotHere } from '../engine/index.js'
import { commandOfBinary, isExecutableFile } from './mongod-binary.js'

/** The mongod that MONGOMS_SYSTEM_BINARY names. */
export function namedMongod(env: NodeJS.ProcessEnv): LocalServer {
  return {
    source: 'system-mongod',
    name: 'mongod named by MONGOMS_SYSTEM_BINARY',
    async commands() {
      const path = env['MONGOMS_SYSTEM_BINARY']
      if (!path) throw new NotHere('not set')
      if (!isExecutableFile(path)) throw new Error(`${path} is not an executable file`)
      return [await commandOfBinary(resolve(path))]
    },
  }
}

/** The first mongod in PATH. */
export function mongodInPath(env: NodeJS.ProcessEnv): LocalServer {
  return {
    source: 'system-mongod',
    name: 'mongod in PATH',
    async commands() {
      const folders = (env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== '')
      const path = folders.map((folder) => resolve(join(folder, 'mongod'))).find(isExecutableFile)
      if (!path) throw new NotHere('there is none')
      return [await commandOfBinary(path)]
    },
  }
}
