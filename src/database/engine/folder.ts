import { existsSync } from 'node:fs'
import { access, constants, mkdir, realpath, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Where one local database lives. Everything that belongs to it is in `root`; the data alone in `data`. */
export interface EngineFolder {
  root: string
  data: string
  state: string
  log: string
}

/** The folder of a local database can't be made or written. */
export class DataDirUnusable extends Error {
  override readonly name = 'DataDirUnusable'
  constructor(
    readonly path: string,
    readonly said: string,
  ) {
    super(
      `expected a folder that can be written at ${path}, got ${said}; choose another with dataDir, or set MONGODB_URI`,
    )
  }
}

/**
 * Creates `root` and its data folder where missing; git never sees what is in it.
 * @throws DataDirUnusable
 */
export async function openEngineFolder(root: string): Promise<EngineFolder> {
  try {
    await mkdir(join(resolve(root), 'db'), { recursive: true, mode: 0o700 })
    await access(root, constants.W_OK)
  } catch (error) {
    throw new DataDirUnusable(resolve(root), (error as Error).message)
  }
  const real = await realpath(root)
  await writeFile(join(real, '.gitignore'), '*\n', { flag: 'wx' }).catch(() => undefined)
  return { root: real, data: join(real, 'db'), state: join(real, 'engine.json'), log: join(real, 'engine.log') }
}

/**
 * The path of one of the programs that node starts (`keeper`, `embedded-server`, `download`). They are plain JavaScript: a run
 * from the TypeScript sources (the tests) uses the built ones.
 */
export function programPath(name: 'engine/keeper' | 'engine/embedded-server' | 'sources/download-program'): string {
  const here = fileURLToPath(new URL('..', import.meta.url))
  const folder = import.meta.url.endsWith('.ts') ? resolve(here, '../../dist/database') : here
  const path = join(folder, `${name}.js`)
  if (!existsSync(path)) throw new Error(`expected the built program ${path}, it is missing; run \`npm run build\``)
  return path
}
