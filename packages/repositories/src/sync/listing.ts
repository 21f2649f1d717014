import { type Changes, compare } from '../compare/index.js'
import { ATTRIBUTES_FILE, type AttributesFile, FileSelection, GeneratedFiles } from '../select/index.js'
import { CommitGone, type Head, type Source, type TreeEntry } from '../source/index.js'
import type { ListedFile, Repository } from './documents.js'
import { digestOf, type Records } from './records.js'

const ATTRIBUTES_BYTES = 262_144
const MOST_ATTRIBUTES = 1_000

/** A listing compared with the records. */
export interface Listed {
  readonly changes: Changes<ListedFile>
  /** The number of files that the owner's patterns take. */
  readonly listed: number
  /** Stands for the records that are as they must be. */
  readonly untouched: string
}

/** Lists a commit and compares it with the records of its repository. */
export async function listed(
  source: Source,
  head: Head,
  repository: Repository,
  records: Records,
  version: string,
  signal: AbortSignal,
): Promise<Listed> {
  const selection = new FileSelection(repository)
  // One object for each file: a hundred thousand of them are the most that a sync has in memory.
  const files = new Map<string, ListedFile & { skipped: ListedFile['skipped'] }>()
  const attributes: TreeEntry[] = []
  for await (const entry of source.tree(head, { signal })) {
    if (isAttributes(entry) && attributes.length < MOST_ATTRIBUTES) attributes.push(entry)
    const { path, blob, kind, bytes } = entry
    // A listing that mends odd names may give two files one path: the first one counts.
    if (selection.takes(path) && !files.has(path)) files.set(path, { path, blob, kind, bytes, skipped: undefined })
  }
  const generated = new GeneratedFiles(await attributesOf(source, head, attributes, signal))
  for (const file of files.values()) file.skipped = selection.reason(file, generated)
  const recorded = []
  for await (const record of records.ofRepository(repository._id)) recorded.push(record)
  const changes = compare(files.values(), recorded, version)
  const touched = new Set([
    ...changes.changed.map(({ path }) => path),
    ...changes.renamed.map(({ from }) => from),
    ...changes.gone,
  ])
  const untouched = digestOf(recorded.flatMap(({ path, fence }) => (touched.has(path) ? [] : [fence])))
  return { changes, listed: files.size, untouched }
}

const isAttributes = ({ path, kind, bytes = 0 }: TreeEntry): boolean =>
  kind === 'file' && bytes <= ATTRIBUTES_BYTES && (path === ATTRIBUTES_FILE || path.endsWith(`/${ATTRIBUTES_FILE}`))

async function attributesOf(
  source: Source,
  head: Head,
  entries: readonly TreeEntry[],
  signal: AbortSignal,
): Promise<AttributesFile[]> {
  if (entries.length === 0) return []
  const blobs = entries.map(({ blob }) => blob)
  const files: AttributesFile[] = []
  let i = 0
  for await (const { content, missing } of source.blobs(head, blobs, { signal, maxBytes: ATTRIBUTES_BYTES })) {
    const { path } = entries[i++]!
    if (!content && missing !== 'too large') throw new CommitGone(source.url, head.commit)
    const folder = path.slice(0, Math.max(0, path.length - ATTRIBUTES_FILE.length - 1))
    if (content) files.push({ folder, text: content.toString('utf8') })
  }
  return files
}
