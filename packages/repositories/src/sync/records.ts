import { createHash } from 'node:crypto'
import type { Collection, Db } from 'mongodb'
import type { Changes, RecordedFile } from '../compare/index.js'
import { type Batch, COLLECTIONS, type FileRecord, type ListedFile, type PlannedFile } from './documents.js'

/** The version of a file that the model failed on: every listing sees it as changed. */
export const NOT_EMBEDDED = 'not embedded'
/** The version of a file whose points are being written: if that ends half-way, every listing sees it as changed. */
const BEING_WRITTEN = 'being written'

const BATCH_FILES = 200
const REMOVED_PATHS = 1_000
/** The bytes that count for a file where the listing doesn't say its size. */
const UNKNOWN_BYTES = 10_000
const BATCH_BYTES = 2_000_000

/** The records of files, and the plans of syncs. Every write carries its step's fence, so a late writer changes nothing that is newer. */
export class Records {
  private readonly files: Collection<FileRecord>
  private readonly batches: Collection<Batch>

  constructor(private readonly db: Db) {
    this.files = db.collection(COLLECTIONS.files)
    this.batches = db.collection(COLLECTIONS.batches)
  }

  async createIndexes(): Promise<void> {
    await this.files.createIndex({ repository: 1, path: 1 })
    await this.batches.createIndex({ sync: 1 })
    await this.db.collection(COLLECTIONS.syncs).createIndex({ repository: 1, createdAt: -1 })
  }

  /** The fields of each file that a comparison needs. */
  async *ofRepository(repository: string): AsyncGenerator<RecordedFile & { readonly fence: number }> {
    const projection = { _id: 0, path: 1, blob: 1, version: 1, skipped: 1, fence: 1 }
    yield* this.files.find({ repository }, { projection, batchSize: 5_000 })
  }

  list(repository: string, under?: string): Promise<FileRecord[]> {
    const below = under ? { path: { $gte: `${under}/`, $lt: `${under}0` } } : {}
    return this.files
      .find({ repository, ...below })
      .sort({ path: 1 })
      .limit(10_000)
      .toArray()
  }

  /**
   * Counts the files and chunks of a repository, and the files that the model failed on.
   * @param from the fence from which on records aren't `untouched`
   */
  async count(repository: string, from = Number.POSITIVE_INFINITY): Promise<RecordCounts> {
    const sumIf = (condition: object, value: unknown) => ({ $sum: { $cond: [condition, value, 0] } })
    const isBefore = { $lt: ['$fence', from] }
    const high = { $floor: { $divide: ['$fence', SPLIT] } }
    const low = { $mod: ['$fence', SPLIT] }
    const [found] = await this.files
      .aggregate<Record<string, number>>([
        { $match: { repository } },
        {
          $group: {
            _id: null,
            files: { $sum: 1 },
            chunks: { $sum: '$chunks' },
            notEmbedded: sumIf({ $eq: ['$version', NOT_EMBEDDED] }, 1),
            high: { $sum: high },
            low: { $sum: low },
            filesBefore: sumIf(isBefore, 1),
            highBefore: sumIf(isBefore, high),
            lowBefore: sumIf(isBefore, low),
          },
        },
      ])
      .toArray()
    const { files = 0, chunks = 0, notEmbedded = 0, high: sum = 0, low: rest = 0 } = found ?? {}
    const { filesBefore = 0, highBefore = 0, lowBefore = 0 } = found ?? {}
    return {
      ...{ files, chunks, notEmbedded, records: digest(files, sum, rest) },
      untouched: digest(filesBefore, highBefore, lowBefore),
    }
  }

  /**
   * Says of files that their points are about to be written. A writer that comes late leaves its fence here before it changes a point, so the
   * records aren't any more as a later sync has found them.
   */
  async announce(repository: string, paths: readonly string[], fence: number): Promise<void> {
    const _id = { $in: paths.map((path) => idOf(repository, path)) }
    await this.files.updateMany({ _id, fence: { $lte: fence } }, { $set: { fence, version: BEING_WRITTEN } })
  }

  async chunksByPath(repository: string): Promise<Map<string, { chunks: number; blob: string }>> {
    const projection = { _id: 0, path: 1, blob: 1, chunks: 1 }
    const found = await this.files.find({ repository }, { projection, batchSize: 5_000 }).toArray()
    return new Map(found.map(({ path, blob, chunks }) => [path, { chunks, blob }]))
  }

  async write(records: readonly Omit<FileRecord, '_id' | 'folder'>[]): Promise<void> {
    if (records.length === 0) return
    const writes = records.map((record) => {
      const _id = idOf(record.repository, record.path)
      const folder = record.path.slice(0, Math.max(0, record.path.lastIndexOf('/')))
      const filter = { _id, fence: { $lte: record.fence } }
      return { replaceOne: { filter, replacement: { ...record, folder }, upsert: true } }
    })
    try {
      await this.files.bulkWrite(writes, { ordered: false })
    } catch (error) {
      // The record is there with a higher fence: a later sync has written it.
      const { writeErrors } = error as { writeErrors?: { code: number } | { code: number }[] }
      const errors = [writeErrors ?? []].flat()
      if (errors.length === 0 || errors.some(({ code }) => code !== 11_000)) throw error
    }
  }

  async remove(repository: string, paths: readonly string[], fence: number): Promise<void> {
    const _id = { $in: paths.map((path) => idOf(repository, path)) }
    await this.files.deleteMany({ _id, fence: { $lte: fence } })
  }

  /** Lets the next comparison see these files as changed. */
  async markDamaged(repository: string, paths: readonly string[]): Promise<void> {
    for (let from = 0; from < paths.length; from += REMOVED_PATHS) {
      const _id = { $in: paths.slice(from, from + REMOVED_PATHS).map((path) => idOf(repository, path)) }
      await this.files.updateMany({ _id }, { $set: { version: 'damaged' } })
    }
  }

  async removeAll(repository: string): Promise<void> {
    await this.files.deleteMany({ repository })
  }

  /** Stores a plan. Its batches are under the fence of the step that made it, so one that a late step makes is never read. */
  async plan(
    sync: string,
    fence: number,
    changes: Changes<ListedFile>,
  ): Promise<{ toIndex: number; toRemove: number; filesToIndex: number }> {
    await this.dropPlans(sync, fence)
    const files = [...changes.added, ...changes.changed, ...changes.renamed.map(({ file }) => file)]
    const parts = batched(files)
    const gone = [...changes.gone, ...changes.renamed.map(({ from }) => from)]
    const removals = Array.from({ length: Math.ceil(gone.length / REMOVED_PATHS) }, (_, i) =>
      gone.slice(i * REMOVED_PATHS, (i + 1) * REMOVED_PATHS),
    )
    const numbered = [
      ...parts.map((part, i) => ({ _id: batchId(sync, fence, 'index', i), part })),
      ...removals.map((removed, i) => ({ _id: batchId(sync, fence, 'remove', i), removed })),
    ]
    for (let from = 0; from < numbered.length; from += 100) {
      const some = numbered.slice(from, from + 100)
      await this.batches.insertMany(
        some.map(
          (one): Batch => ({
            ...{ _id: one._id, sync, fence },
            ...('part' in one ? { files: one.part.map(planned) } : { removed: one.removed }),
          }),
        ),
      )
    }
    return { toIndex: parts.length, toRemove: removals.length, filesToIndex: files.length }
  }

  /** A batch of a plan. @throws Error if it was deleted */
  async batch(sync: string, plan: number, kind: 'index' | 'remove', n: number): Promise<Batch> {
    const found = await this.batches.findOne({ _id: batchId(sync, plan, kind, n) })
    if (!found)
      throw new Error(`the plan of sync ${sync} has lost its batch ${kind} ${n}: cancel the sync and begin a new one`)
    return found
  }

  /** Drops the plans of a sync, except those of a later holder. */
  async dropPlans(sync: string, fence: number): Promise<void> {
    await this.batches.deleteMany({ sync, fence: { $not: { $gt: fence } } })
  }
}

/** Counts of records. */
export interface RecordCounts {
  readonly files: number
  readonly chunks: number
  readonly notEmbedded: number
  /** Stands for all records. */
  readonly records: string
  /** Stands for those with a fence below the one that was given. */
  readonly untouched: string
}

/** Fences are summed in two parts: as doubles their sum wouldn't be exact. */
const SPLIT = 1_000_000

/** Stands for some records: another fence of one of them, which only grows, makes it another text. */
const digest = (files: number, high: number, low: number): string => `${files}:${high}:${low}`

export function digestOf(fences: Iterable<number>): string {
  let [files, high, low] = [0, 0, 0]
  for (const fence of fences) {
    files += 1
    high += Math.floor(fence / SPLIT)
    low += fence % SPLIT
  }
  return digest(files, high, low)
}

const batchId = (sync: string, plan: number, kind: string, n: number): string => `${sync}/${plan}/${kind}/${n}`

/** A path may be longer than any index takes. */
const idOf = (repository: string, path: string): string =>
  createHash('sha256')
    .update(JSON.stringify([repository, path]))
    .digest('hex')

const planned = ({ path, blob, skipped }: ListedFile): PlannedFile => ({ path, blob, ...(skipped ? { skipped } : {}) })

/** Batches of at most 200 files and, but for a single file, 2 MB. */
function batched(files: readonly ListedFile[]): ListedFile[][] {
  const parts: ListedFile[][] = []
  let total = 0
  for (const file of files) {
    const size = file.skipped ? 0 : (file.bytes ?? UNKNOWN_BYTES)
    const part = parts.at(-1)
    if (part && part.length < BATCH_FILES && total + size <= BATCH_BYTES) {
      part.push(file)
      total += size
    } else {
      parts.push([file])
      total = size
    }
  }
  return parts
}
