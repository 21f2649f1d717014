import { readdir, readFile, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { QUERIES } from './queries.ts'

const ROOT = fileURLToPath(new URL('../../node_modules', import.meta.url))
/** Sources that people read come first, then everything else by name. */
const FIRST = ['rxjs/src', 'mongodb/src', 'mongoose/lib', '@nestjs', 'ioredis', 'mysql2/lib', 'mariadb/lib', '@smithy']
const SOURCE = /(?<!\.d|\.min)\.(?:ts|js|mjs|cjs)$/
const MOST_BYTES = 30_000
/** The part of the files that are in the folder which is renamed: 300 of 2,000. */
const FOLDER_SHARE = 0.15
const EDITED = 20
const DELETED = 5

/** Paths below `node_modules`, with their text. */
export type Files = ReadonlyMap<string, string>

/** Chooses files of `node_modules`: text, not empty, no two alike, among them those that the queries look for. */
export async function chooseFiles(count: number): Promise<Files> {
  const files = new Map<string, string>()
  const known = new Set<string>()
  const take = async (path: string) => {
    if (files.size >= count || files.has(path) || (await stat(join(ROOT, path))).size > MOST_BYTES) return
    const text = await textOf(join(ROOT, path))
    if (text === undefined || known.has(text)) return
    known.add(text)
    files.set(path, text)
  }
  for (const { path } of QUERIES) {
    const text = await textOf(join(ROOT, path))
    if (text === undefined) throw new Error(`expected a text file at node_modules/${path}: npm ci installs it`)
    known.add(text)
    files.set(path, text)
  }
  for (const folder of [...FIRST, ...(await readdir(ROOT)).sort()]) {
    for (const path of await sourcesIn(folder)) await take(path)
    if (files.size >= count) break
  }
  return files
}

async function sourcesIn(folder: string): Promise<string[]> {
  const entries = await readdir(join(ROOT, folder), { recursive: true, withFileTypes: true }).catch(() => [])
  return entries
    .filter((entry) => entry.isFile() && SOURCE.test(entry.name))
    .map(({ parentPath, name }) => join(parentPath, name).slice(ROOT.length + 1))
    .sort()
}

/** Undefined for what isn't plain UTF-8. */
async function textOf(path: string): Promise<string | undefined> {
  const bytes = await readFile(path)
  const text = bytes.toString('utf8')
  const isPlain = text.trim() !== '' && !/[\0\ufeff]/.test(text) && Buffer.from(text).equals(bytes)
  return isPlain ? text : undefined
}

/** The files of the next commit, and what is different in it. */
export interface Change {
  readonly files: Files
  readonly edited: number
  readonly deleted: number
  readonly renamed: number
  /** The new path of a file. */
  readonly pathOf: (before: string) => string
}

/** Renames a folder, edits 20 files outside of it, half of them in their first line, and deletes five. */
export function change(before: Files): Change {
  const folder = folderOf(before)
  const isIn = (path: string) => path.startsWith(`${folder}/`)
  const pathOf = (path: string) => (isIn(path) ? `renamed/${path}` : path)
  const files = new Map([...before].map(([path, text]) => [pathOf(path), text]))
  const wanted = new Set(QUERIES.map(({ path }) => path))
  const others = [...before.keys()].filter((path) => !isIn(path) && !wanted.has(path))
  const every = Math.floor(others.length / (EDITED + DELETED))
  const touched = others.filter((_path, i) => i % every === 0).slice(0, EDITED + DELETED)
  touched.forEach((path, i) => {
    const text = before.get(path)!
    if (i < DELETED) files.delete(path)
    else files.set(path, i % 2 === 0 ? `// line ${i}, inserted\n${text}` : `${text}\n// line ${i}, added\n`)
  })
  const renamed = [...before.keys()].filter(isIn).length
  return { files, edited: touched.length - DELETED, deleted: DELETED, renamed, pathOf }
}

/** The folder that holds the number of files nearest to the wanted one. */
function folderOf(files: Files): string {
  const sizes = new Map<string, number>()
  for (const path of files.keys())
    for (let folder = dirname(path); folder !== '.'; folder = dirname(folder))
      sizes.set(folder, (sizes.get(folder) ?? 0) + 1)
  const distance = (size: number) => Math.abs(size - FOLDER_SHARE * files.size)
  return [...sizes].reduce((best, one) => (distance(one[1]) < distance(best[1]) ? one : best))[0]
}
