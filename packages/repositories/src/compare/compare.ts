/** A file as a listing has it now. */
export interface ListedFile {
  readonly path: string
  readonly blob: string
  /** Why the listing alone says that its content isn't read. */
  readonly skipped?: string | undefined
}

/** A file as it was recorded when it was last indexed. */
export interface RecordedFile {
  readonly path: string
  readonly blob: string
  /** The listing's reason at that time. */
  readonly skipped?: string | undefined
  /** The settings that it was indexed with: model, dimensions, chunk size. */
  readonly version: string
}

/** A file that is at another path now, with the same content. */
export interface Renamed<File> {
  readonly from: string
  readonly file: File
}

/** The work that makes the records equal to the listing. */
export interface Changes<File> {
  readonly added: readonly File[]
  readonly changed: readonly File[]
  readonly renamed: readonly Renamed<File>[]
  /** The paths that aren't in the listing any more, without those of `renamed`. */
  readonly gone: readonly string[]
  readonly unchanged: number
}

/**
 * Compares a tree with the records, by content alone. No time, no commit and no former state has a part in it, so force-pushes, clocks that
 * differ, lost work folders and records edited by hand need no case of their own: whatever the records say, following the changes
 * makes them equal to the listing. The paths of a listing are distinct; time and memory are linear.
 */
export function compare<File extends ListedFile>(
  listed: Iterable<File>,
  recorded: Iterable<RecordedFile>,
  version: string,
): Changes<File> {
  const records = new Map<string, RecordedFile>()
  for (const record of recorded) records.set(record.path, record)
  const news: File[] = []
  const changed: File[] = []
  let unchanged = 0
  for (const file of listed) {
    const record = records.get(file.path)
    records.delete(file.path)
    if (!record) news.push(file)
    else if (isAsRecorded(file, record, version)) unchanged += 1
    else changed.push(file)
  }
  const { renamed, added, taken } = pairs(news, records.values())
  const gone = [...records.keys()].filter((path) => !taken.has(path))
  return { added, changed, renamed, gone, unchanged }
}

const isAsRecorded = (file: ListedFile, record: RecordedFile, version: string): boolean =>
  file.blob === record.blob && record.version === version && (file.skipped ?? null) === (record.skipped ?? null)

/** Pairs new files with lost ones of the same content: those of the same name first. Each lost one is taken once. */
function pairs<File extends ListedFile>(news: readonly File[], lost: Iterable<RecordedFile>) {
  const byBlob = new Map<string, Set<string>>()
  for (const { blob, path } of lost) byBlob.set(blob, (byBlob.get(blob) ?? new Set()).add(path))
  const from = new Map<File, string>()
  const taken = new Set<string>()
  const take = (file: File, path: string | undefined) => {
    if (path === undefined) return
    from.set(file, path)
    taken.add(path)
    byBlob.get(file.blob)?.delete(path)
  }
  const bySameName = new Map<string, string[]>()
  for (const [blob, paths] of byBlob)
    for (const path of paths) {
      const key = `${blob} ${nameOf(path)}`
      const there = bySameName.get(key)
      if (there) there.push(path)
      else bySameName.set(key, [path])
    }
  for (const paths of bySameName.values()) paths.reverse()
  for (const file of news) take(file, bySameName.get(`${file.blob} ${nameOf(file.path)}`)?.pop())
  for (const file of news) if (!from.has(file)) take(file, byBlob.get(file.blob)?.values().next().value)
  const renamed = news.flatMap((file) => (from.has(file) ? [{ from: from.get(file)!, file }] : []))
  return { renamed, added: news.filter((file) => !from.has(file)), taken }
}

const nameOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1)
