import { execFile } from 'node:child_process'
import { accessSync, constants, statSync } from 'node:fs'
import { promisify } from 'node:util'
import type { ServerCommand } from '../engine/index.js'

/** The same as Phaselock's: its pipeline updates, `$$NOW` and hints need it. */
export const OLDEST_SERVER_VERSION = '5.0'

export function isExecutableFile(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}

/**
 * Returns the command of a mongod binary, after checking its version: one that is too old must not touch the data.
 * @throws Error if it doesn't run or is too old
 */
export async function commandOfBinary(path: string): Promise<ServerCommand> {
  const { stdout } = await promisify(execFile)(path, ['--version'], { timeout: 10_000 }).catch(
    (error: Error & { stderr?: string }) => {
      throw new Error(`${path} --version failed: ${(error.stderr?.trim() || error.message).split('\n')[0]}`)
    },
  )
  const version = /db version v?(\d+\.\d+\.\d+\S*)/.exec(stdout)?.[1]
  if (version && Number.parseInt(version, 10) < Number.parseInt(OLDEST_SERVER_VERSION, 10)) {
    throw new Error(`${path} is version ${version}, expected ${OLDEST_SERVER_VERSION} or later`)
  }
  return { command: path, args: [] }
}

/** Returns the commands of the usable binaries. @throws Error with the report of each if none is usable */
export async function commandsOfBinaries(paths: string[]): Promise<ServerCommand[]> {
  const results = await Promise.allSettled(paths.map(commandOfBinary))
  const commands = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
  if (commands.length > 0) return commands
  throw new Error(results.map((result) => String((result as PromiseRejectedResult).reason?.message)).join('; '))
}
