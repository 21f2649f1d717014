import { existsSync } from 'node:fs'
import { access, constants, mkdir, readdir, realpath, statfs, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The storage of one local database. Everything that belongs to it is in `root`; `data` contains only its data. */
export interface EngineFolder {
  root: string
  data: string
  state: string
  log: string
}

/** The folder of a local database can't be created or written. */
export class DataDirUnusable extends Error {
  override readonly name = 'DataDirUnusable'
  constructor(
    readonly path: string,
    readonly said: string,
  ) {
    super(`expected a writable folder at ${path}, got ${said}; choose another with dataDir, or set MONGODB_URI`)
  }
}

/** The disk of a new local database has too little space. */
export class NotEnoughSpace extends Error {
  override readonly name = 'NotEnoughSpace'
}

/**
 * Creates `root` and its data folder if missing; git ignores their content.
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
  return folderAt(real)
}

/** Returns the folder of a local database that existed before; undefined if there is none. Nothing is created. */
export async function existingEngineFolder(root: string): Promise<EngineFolder | undefined> {
  const real = await realpath(root).catch(() => undefined)
  return real !== undefined && existsSync(join(real, 'engine.json')) ? folderAt(real) : undefined
}

const folderAt = (root: string): EngineFolder => ({
  root,
  data: join(root, 'db'),
  state: join(root, 'engine.json'),
  log: join(root, 'engine.log'),
})

/** With less free space a server builds no index (`indexBuildMinAvailableDiskSpaceMB`). */
export const FIRST_START_BYTES = 500 * 1024 * 1024

/**
 * Checks the free space. Call it before a first start: before a server is fetched, or started on an empty folder.
 * @throws NotEnoughSpace
 */
export async function requireFreeSpace({ data }: EngineFolder, needed: number): Promise<void> {
  if ((await readdir(data)).length > 0) return
  const { bavail, bsize } = await statfs(data)
  if (bavail * bsize >= needed) return
  const mb = (bytes: number) => Math.floor(bytes / 1024 / 1024)
  throw new NotEnoughSpace(
    `expected ${mb(needed)} MB of free space for a new database in ${data}, got ${mb(bavail * bsize)} MB; free some, ` +
      'choose a folder on another disk (dataDir, PHASELOCK_DATA_DIR, --data-dir), or set MONGODB_URI',
  )
}

/**
 * Returns the path of one of the programs that node starts (`keeper`, `embedded-server`, `download`). They are plain JavaScript: a run
 * from the TypeScript sources (the tests) uses the built ones.
 */
export function programPath(name: 'engine/keeper' | 'engine/embedded-server' | 'sources/download-program'): string {
  const here = fileURLToPath(new URL('..', import.meta.url))
  const folder = import.meta.url.endsWith('.ts') ? resolve(here, '../dist') : here
  const path = join(folder, `${name}.js`)
  if (!existsSync(path)) throw new Error(`expected the built program ${path}, but it is missing; run \`npm run build\``)
  return path
}
