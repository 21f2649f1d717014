import { createHash } from 'node:crypto'
import { type ChunkSize, chunksOf, type VectorStore } from '../../packages/repositories/dist/index.js'

/** What a store holds of a repository, against the chunks of its files. */
export interface Compared {
  /** Points in the store, and the chunks that there must be. */
  readonly points: number
  readonly expected: number
  /** Points beyond the first of the same text of the same file. */
  readonly duplicates: number
  /** Chunks without a point. */
  readonly missing: number
  /** Points of a text, lines or content that their file doesn't have. */
  readonly stale: number
}

const PAGE = 10_000
const sha = (name: 'sha1' | 'sha256', ...parts: readonly (string | Buffer)[]) =>
  parts.reduce((hash, part) => hash.update(part), createHash(name)).digest('hex')

/** The id that git gives a file with this content. */
function blobOf(text: string): string {
  const bytes = Buffer.from(text)
  return sha('sha1', `blob ${bytes.length}\0`, bytes)
}

/** A text of a file has one point, also where the file has it twice: then its lines are those of either. */
const textKey = (path: string, text: string) => `${path}\n${sha('sha256', text)}`
const placeOf = (blob: string, from: number, to: number) => `${blob}:${from}-${to}`

/** Compares all points of a repository with the chunks of its files, as they are cut here. */
export async function compared(
  store: Pick<VectorStore, 'scroll'>,
  { repository, collection }: { readonly repository: string; readonly collection: string },
  files: ReadonlyMap<string, string>,
  size: ChunkSize,
): Promise<Compared> {
  const expected = new Map<string, Set<string>>()
  for (const [path, content] of files) {
    const blob = blobOf(content)
    for (const { text, lines } of chunksOf(content, size)) {
      const key = textKey(path, text)
      expected.set(key, (expected.get(key) ?? new Set()).add(placeOf(blob, lines.from, lines.to)))
    }
  }
  const found = new Set<string>()
  let [points, duplicates, stale] = [0, 0, 0]
  let after: string | undefined
  do {
    const page = await store.scroll(collection, { repository }, { limit: PAGE, after })
    for (const { path, text, blob, fromLine, toLine } of page.points) {
      points += 1
      const key = textKey(path, text)
      if (found.has(key)) duplicates += 1
      else if (!expected.get(key)?.has(placeOf(blob, fromLine, toLine))) stale += 1
      found.add(key)
    }
    after = page.next
  } while (after !== undefined)
  const missing = [...expected.keys()].filter((key) => !found.has(key)).length
  return { points, expected: expected.size, duplicates, missing, stale }
}
