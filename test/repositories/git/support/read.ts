import type { Blob, Head, Source, TreeEntry } from 'phaselock-repositories'

const { signal } = new AbortController()

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = []
  for await (const item of items) found.push(item)
  return found
}

export const headOf = (source: Source, branch?: string): Promise<Head> => source.head(branch, { signal })

export const treeOf = (source: Source, head: Head): Promise<TreeEntry[]> => all(source.tree(head, { signal }))

/** Each path with its content, or why there is none. */
export async function contentsOf(source: Source, head: Head, maxBytes = 1_000): Promise<Record<string, string>> {
  const entries = (await treeOf(source, head)).filter(({ kind }) => kind === 'file')
  const blobs = await all(
    source.blobs(
      head,
      entries.map(({ blob }) => blob),
      { signal, maxBytes },
    ),
  )
  const shown = (blob: Blob | undefined) => blob?.content?.toString() ?? blob?.missing ?? 'nothing'
  return Object.fromEntries(entries.map(({ path }, i) => [path, shown(blobs[i])]))
}

/** The error of a call, which is expected to fail. */
export async function errorOf(call: Promise<unknown>): Promise<Error> {
  try {
    await call
  } catch (error) {
    return error as Error
  }
  throw new Error('expected an error, and it went well')
}
