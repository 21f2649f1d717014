import { access, constants } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { MongoBinary } from 'mongodb-memory-server'

/** Thrown where there is no `mongod` that can replicate; the local database's engine can't. */
export class NoMongod extends Error {
  override readonly name = 'NoMongod'
  constructor(cause: unknown) {
    super(
      'expected a mongod for a replica set; got none from MONGOMS_SYSTEM_BINARY, PATH and mongodb-memory-server ' +
        `(${cause instanceof Error ? cause.message.split('\n')[0] : cause}): install MongoDB's server, or set MONGOMS_SYSTEM_BINARY to its path`,
      { cause },
    )
  }
}

/**
 * The path of a `mongod`: MONGOMS_SYSTEM_BINARY, the first in PATH, or that of mongodb-memory-server, which downloads it once.
 * @throws NoMongod
 */
export async function mongodPath(env: NodeJS.ProcessEnv = process.env): Promise<string> {
  const given = env['MONGOMS_SYSTEM_BINARY']
  const inPath = (env['PATH'] ?? '').split(delimiter).map((folder) => join(folder, 'mongod'))
  for (const path of given === undefined ? inPath : [given]) {
    if (await isProgram(path)) return path
  }
  try {
    if (given !== undefined) throw new Error(`${given} isn't a program`)
    return await MongoBinary.getPath()
  } catch (error) {
    throw new NoMongod(error)
  }
}

const isProgram = (path: string) =>
  access(path, constants.X_OK).then(
    () => true,
    () => false,
  )
