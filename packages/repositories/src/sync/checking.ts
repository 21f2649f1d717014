import { CollectionMissing, type VectorStore } from '../vectors/index.js'
import { type SyncContext, specOf } from './context.js'

/** The result of Checking. */
export interface Checked {
  readonly expected: number
  readonly found: number
  /** The files whose points were wrong: the next listing sees them as changed. */
  readonly damaged: number
}

/**
 * Compares the store with the records: the number of points, and where it differs each file's. Points of files that no record has are removed; files
 * with missing or too many points are marked, so that they are indexed again, from the vectors that were kept.
 */
export async function checkStore(
  context: SyncContext,
  repository: string,
  collection: string,
  { fence, signal }: { readonly fence: number; readonly signal: AbortSignal },
): Promise<Checked> {
  const { store, records } = context
  const { chunks: expected } = await records.count(repository)
  const found = await countIn(context, collection, repository, signal)
  if (found === expected) return { expected, found, damaged: 0 }
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
  return { expected, found, damaged: damaged.length + strays.length }
}

/** A collection that somebody has deleted is made again, and holds nothing. */
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
