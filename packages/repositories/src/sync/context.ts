import { createHash } from 'node:crypto'
import type { Db } from 'mongodb'
import type { Schedules } from 'phaselock/schedules'
import type { ChunkSize } from '../chunk/index.js'
import type { Embeddings } from '../embeddings/index.js'
import type { Source } from '../source/index.js'
import type { CollectionSpec, VectorStore } from '../vectors/index.js'
import { COLLECTIONS, type Repository, type RepositoryFields, type RepositorySync } from './documents.js'
import type { SyncMetrics } from './metrics.js'
import type { Records } from './records.js'

/** All that the handlers work with. */
export interface SyncContext {
  readonly db: Db
  readonly store: VectorStore
  readonly embeddings: Embeddings
  readonly chunks: ChunkSize
  readonly records: Records
  readonly schedules: Schedules
  readonly metrics: SyncMetrics
  readonly sourceOf: (repository: Repository) => Source
  /** Asks the open syncs of a repository to end. */
  readonly cancelSyncs: (repository: string) => Promise<number>
}

/** The version of the text that comes out of this package for a file; raise it when chunks of the same text change. */
const CHUNKER = 'lines-1'

export const specOf = ({ embeddings, chunks }: SyncContext): CollectionSpec => ({
  model: embeddings.model,
  dimensions: embeddings.dimensions,
  chunker: `${CHUNKER}:${chunks.characters}/${chunks.overlap}`,
})

const hashOf = (value: unknown): string => createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 16)

/** The settings that a file's chunks depend on, besides its content, as a hash. */
export const versionOf = (context: SyncContext, { encodings = [], maxFileBytes }: RepositoryFields): string =>
  // A listing without sizes leaves it to the content to be too large.
  hashOf([specOf(context), encodings, ...(maxFileBytes === undefined ? [] : [maxFileBytes])])

/** The settings that a repository's points depend on, besides the commit, as a hash. */
export const settingsOf = (context: SyncContext, repository: RepositoryFields): string => {
  const { url, branch = null, include = [], exclude = [], maxFileBytes = null, collection } = repository
  return hashOf([versionOf(context, repository), url, branch, include, exclude, maxFileBytes, collection])
}

/** The characters that the name of a table of PostgreSQL has at most. */
const LONGEST_NAME = 63

/**
 * The collection for the points of a repository: of its own name for it, unless that was made for another model. Then one with an ending, so vectors
 * of two models are never mixed, and processes with the former model search the old one until the new one is complete.
 */
export async function collectionFor(context: SyncContext, name: string, signal: AbortSignal): Promise<string> {
  const spec = specOf(context)
  const found = await context.store.describe(name, { signal })
  const isOther = found !== undefined && hashOf([found.model, found.dimensions, found.chunker]) !== specHash(spec)
  const collection = isOther ? `${name.slice(0, LONGEST_NAME - 9)}_${specHash(spec).slice(0, 8)}` : name
  await context.store.create(collection, spec, { signal })
  return collection
}

const specHash = ({ model, dimensions, chunker }: CollectionSpec) => hashOf([model, dimensions, chunker])

/** The time by the server's clock, read with a sync's document. @throws Error if it was deleted */
export async function serverTime(db: Db, sync: string): Promise<Date> {
  const [found] = await db
    .collection<RepositorySync>(COLLECTIONS.syncs)
    .aggregate<{ now: Date }>([{ $match: { _id: sync } }, { $project: { now: '$$NOW' } }])
    .toArray()
  if (!found) throw new Error(`the sync ${sync} was deleted while it was open`)
  return found.now
}

/** The collections that may hold points of a repository: those that its syncs have used. */
export async function collectionsOf(db: Db, { _id, synced }: Repository): Promise<string[]> {
  const used = await db.collection<RepositorySync>(COLLECTIONS.syncs).distinct('collection', { repository: _id })
  return [...new Set([synced?.collection, ...used])].filter((name) => name !== undefined)
}

export const repositoryOf = (db: Db, id: string): Promise<Repository | null> =>
  db.collection<Repository>(COLLECTIONS.repositories).findOne({ _id: id })
