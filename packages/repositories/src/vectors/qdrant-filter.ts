import type { PointFilter } from './vector-store.js'

/** A filter as Qdrant takes it: all of `must`, none of `must_not`. */
export interface QdrantFilter {
  readonly must: readonly object[]
  readonly must_not: readonly object[]
}

/** Translates a filter. `folders` is a field of ours: Qdrant can't search a path by its beginning without another index. */
export function qdrantFilter({ repository, paths, under, ids, exceptIds }: PointFilter): QdrantFilter {
  const must: object[] = []
  if (repository !== undefined) must.push({ key: 'repository', match: { value: repository } })
  if (paths) must.push({ key: 'path', match: { any: paths } })
  if (under !== undefined)
    must.push({
      should: [
        { key: 'path', match: { value: under } },
        { key: 'folders', match: { value: under } },
      ],
    })
  if (ids) must.push({ has_id: ids })
  return { must, must_not: exceptIds ? [{ has_id: exceptIds }] : [] }
}

/** The points that no later sync has written. */
export const writtenUpTo = (fence: number): object => ({ key: 'fence', range: { lte: fence } })
