import { type Chunk, chunksOf, decode } from '../chunk/index.js'
import { BadEmbeddings, EmbeddingsRefused, EmbeddingTimeout } from '../embeddings/index.js'
import { DEFAULT_MAX_FILE_BYTES } from '../select/index.js'
import { CommitGone, type Head, type Source } from '../source/index.js'
import { elapsed } from '../time.js'
import { type Point, pointId } from '../vectors/index.js'
import { type SyncContext, versionOf } from './context.js'
import type { FileRecord, PlannedFile, Repository, SyncCounters, SyncStages } from './documents.js'
import { NOT_EMBEDDED } from './records.js'

/** The points of one write. */
const UPSERT = 500
/** The tries of a batch after which a file that the model fails on is put into the records as such, and the others go on. */
const TRIES = 3
/** So many files that the model fails on, and none that it doesn't: the model fails, not its texts. */
const OF_MODEL = 3

interface IndexedFile {
  readonly file: PlannedFile
  readonly bytes: number
  readonly lines: number
  readonly chunks: readonly Chunk[]
  readonly reason?: string | undefined
}

/** One batch of a sync. */
export interface BatchWork {
  readonly repository: Repository
  readonly source: Source
  readonly head: Head
  readonly collection: string
  readonly files: readonly PlannedFile[]
  readonly fence: number
  readonly attempt: number
  readonly signal: AbortSignal
}

/** The numbers that a batch adds to those of its sync. */
export interface BatchDone {
  readonly counters: Pick<SyncCounters, 'skipped' | 'chunks' | 'embedded' | 'reused' | 'beyondWindow'>
  readonly stages: Omit<SyncStages, 'listingMs'>
}

/**
 * Indexes the files of a batch: chunks, vectors, a mark on the records, points, then the former points of these files, then their records. In this
 * order a crash at any place is repaired by doing it again, and a search finds each of the files at any time.
 */
export async function indexBatch(context: SyncContext, work: BatchWork): Promise<BatchDone> {
  const { repository, collection, fence, signal } = work
  const { store, records } = context
  const started = elapsed()
  const read = await readFiles(context, work)
  const readAt = elapsed()
  const made = await vectorsOf(context, read, work)
  const embeddedAt = elapsed()
  const points = made.files.flatMap(({ file, chunks, vectors }) =>
    chunks.map((chunk, i): Point => pointOf(repository._id, file, chunk, vectors[i]!)),
  )
  const paths = work.files.map(({ path }) => path)
  await records.announce(repository._id, paths, fence)
  for (let from = 0; from < points.length; from += UPSERT)
    await store.upsert(collection, points.slice(from, from + UPSERT), { fence, signal })
  const others = { repository: repository._id, paths, exceptIds: points.map(({ id }) => id) }
  await store.delete(collection, others, { fence, signal })
  const version = versionOf(context, repository)
  await records.write(made.files.map((file) => recordOf(file, repository._id, version, fence)))
  return {
    counters: {
      skipped: made.files.filter(({ reason }) => reason !== undefined).length,
      chunks: points.length,
      embedded: made.embedded,
      reused: made.reused,
      beyondWindow: made.beyondWindow,
    },
    stages: {
      readingMs: Math.round(readAt - started),
      embeddingMs: Math.round(embeddedAt - readAt),
      storingMs: Math.round(elapsed() - embeddedAt),
      bytes: read.reduce((sum, { bytes }) => sum + bytes, 0),
    },
  }
}

async function readFiles({ chunks: size }: SyncContext, work: BatchWork): Promise<IndexedFile[]> {
  const { repository, source, head, files, signal } = work
  const { encodings = [], maxFileBytes = DEFAULT_MAX_FILE_BYTES } = repository
  const none = { bytes: 0, lines: 0, chunks: [] }
  const indexed = files.flatMap((file): IndexedFile[] =>
    file.skipped ? [{ file, ...none, reason: file.skipped }] : [],
  )
  const wanted = files.filter(({ skipped }) => !skipped)
  let i = 0
  const blobs = wanted.map(({ blob }) => blob)
  for await (const { content, missing } of source.blobs(head, blobs, { signal, maxBytes: maxFileBytes })) {
    const file = wanted[i++]!
    if (!content) {
      // Read a moment ago in the listing: the commit, or the right to read it, is gone. That says nothing of the file.
      if (missing !== 'too large') throw new CommitGone(source.url, head.commit)
      indexed.push({ file, ...none, reason: missing })
      continue
    }
    const decoded = decode(content, encodings)
    const bytes = content.length
    if ('skipped' in decoded) indexed.push({ file, ...none, bytes, reason: decoded.skipped })
    else indexed.push({ file, bytes, lines: linesOf(decoded.text), chunks: chunksOf(decoded.text, size) })
  }
  if (i < wanted.length) throw new Error(`${source.url}: expected ${wanted.length} contents, got ${i}`)
  return indexed
}

const linesOf = (text: string): number => text.split('\n').length - (text.endsWith('\n') ? 1 : 0)

interface WithVectors extends IndexedFile {
  readonly vectors: readonly Float32Array[]
}

/** The vectors of all files. After some tries one by one, so that a text that the model fails on stops only its own file. */
async function vectorsOf({ embeddings }: SyncContext, files: readonly IndexedFile[], { attempt, signal }: BatchWork) {
  const sum = { embedded: 0, reused: 0, beyondWindow: 0 }
  const embed = async (chunks: readonly Chunk[]): Promise<readonly Float32Array[]> => {
    if (chunks.length === 0) return []
    const made = await embeddings.embed(
      chunks.map(({ text }) => text),
      { signal },
    )
    sum.embedded += made.embedded
    sum.reused += made.reused
    sum.beyondWindow += made.beyondWindow
    return made.vectors
  }
  const done: WithVectors[] = []
  if (attempt < TRIES) {
    const vectors = await embed(files.flatMap(({ chunks }) => chunks))
    let from = 0
    for (const file of files) {
      done.push({ ...file, vectors: vectors.slice(from, from + file.chunks.length) })
      from += file.chunks.length
    }
    return { files: done, ...sum }
  }
  let failed = 0
  for (const file of files) {
    try {
      done.push({ ...file, vectors: await embed(file.chunks) })
    } catch (error) {
      failed += 1
      const isOfModel = failed >= OF_MODEL && sum.embedded + sum.reused === 0
      if (isOfModel || !isOfText(error)) throw error
      done.push({ ...file, chunks: [], vectors: [], reason: `${NOT_EMBEDDED}: ${error.message}`.slice(0, 500) })
    }
  }
  return { files: done, ...sum }
}

/** The statuses by which a service refuses a text; by others it refuses the key or the model. */
const OF_TEXT = [400, 413, 422]

/** Checks if a refusal may be of a text alone. */
export const mayBeText = ({ status }: EmbeddingsRefused): boolean => OF_TEXT.includes(status)

const isOfText = (error: unknown): error is Error =>
  error instanceof BadEmbeddings ||
  error instanceof EmbeddingTimeout ||
  (error instanceof EmbeddingsRefused && mayBeText(error))

const pointOf = (repository: string, file: PlannedFile, chunk: Chunk, vector: Float32Array): Point => ({
  id: pointId(repository, file.path, chunk.hash),
  vector,
  repository,
  path: file.path,
  blob: file.blob,
  hash: chunk.hash,
  fromLine: chunk.lines.from,
  toLine: chunk.lines.to,
  text: chunk.text,
})

function recordOf(
  indexed: IndexedFile,
  repository: string,
  version: string,
  fence: number,
): Omit<FileRecord, '_id' | 'folder'> {
  const { file, bytes, lines, chunks, reason } = indexed
  return {
    repository,
    path: file.path,
    blob: file.blob,
    ...(file.skipped ? { skipped: file.skipped } : {}),
    // A file that wasn't embedded is tried again by the next sync.
    version: reason?.startsWith(NOT_EMBEDDED) ? NOT_EMBEDDED : version,
    bytes,
    lines,
    chunks: chunks.length,
    ...(reason === undefined ? {} : { reason }),
    fence,
  }
}
