import { CollectionMissing, type VectorStore } from '../vectors/index.js'
import { type SyncContext, specOf } from './context.js'
import type { RepositorySync } from './documents.js'
import type { RecordCounts } from './records.js'

/** The result of Checking. */
export interface Checked extends RecordCounts {
  /** The difference that was found, in words; undefined: none. */
  readonly problem: string | undefined
  /** The files whose points were wrong: the next listing sees them as changed. */
  readonly damaged: number
}

/**
 * Compares the store with the records, and the records with what there must be: a replica that was paused past its lease may have written both,
 * for files that are gone. Where the number of points differs, each file's is compared: points without a record are removed; files with missing
 * or too many points are marked, so that they are indexed again, from the vectors that were kept.
 */
export async function checkStore(
  context: SyncContext,
  repository: string,
  collection: string,
  { expected, from }: Pick<RepositorySync, 'expected' | 'from'>,
  { fence, signal }: { readonly fence: number; readonly signal: AbortSignal },
): Promise<Checked> {
  const { store, records } = context
  const count = await records.count(repository, from)
  const found = await countIn(context, collection, repository, signal)
  if (found === count.chunks) {
    const { files = count.files, chunks = count.chunks, untouched = count.untouched } = expected ?? {}
    const isRight = count.files === files && count.chunks === chunks
    const problem = !isRight
      ? `there are records of ${count.files} files and ${count.chunks} chunks instead of ${files} and ${chunks}`
      : count.untouched === untouched
        ? undefined
        : 'files were written that this sync had found unchanged, by a former one'
    return { ...count, problem, damaged: 0 }
  }
  const wanted = await records.chunksByPath(repository)
  const there = await pointsByPath(store, collection, repository, signal)
  const strays = [...there.keys()].filter((path) => !wanted.has(path))
  for (let from = 0; from < strays.length; from += 500)
    await store.delete(collection, { repository, paths: strays.slice(from, from + 500) }, { fence, signal })
  const damaged = [...wanted].flatMap(([path, { chunks, blob }]) => {
    const points = there.get(path)
    const isRight = (points?.count ?? 0) === chunks && (!points || (points.blobs.size === 1 && points.blobs.has(blob)))
    return isRight ? [] : [path]
  })
  await records.markDamaged(repository, damaged)
  const problem = `the collection '${collection}' has ${found} points of it instead of ${count.chunks}`
  return { ...count, problem, damaged: damaged.length + strays.length }
}

/** A collection that was deleted is made again, and holds nothing. */
async function countIn(
  context: SyncContext,
  collection: string,
  repository: string,
  signal: AbortSignal,
): Promise<number> {
  try {
    return await context.store.count(collection, { repository }, { signal })
  } catch (error) {
    if (!(error instanceof CollectionMissing)) throw error
    await context.store.create(collection, specOf(context), { signal })
    return 0
  }
}

async function pointsByPath(store: VectorStore, collection: string, repository: string, signal: AbortSignal) {
  const paths = new Map<string, { count: number; blobs: Set<string> }>()
  let after: string | undefined
  do {
    const page = await store.scroll(collection, { repository }, { after, signal })
    for (const { path, blob } of page.points) {
      const there = paths.get(path) ?? { count: 0, blobs: new Set() }
      there.count += 1
      there.blobs.add(blob)
      paths.set(path, there)
    }
    after = page.next
  } while (after !== undefined)
  return paths
}
