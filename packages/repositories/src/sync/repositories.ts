import type { Db } from 'mongodb'
import type { Logger, RunnableLifecycle } from 'phaselock'
import { Schedules, starts, type Task } from 'phaselock/schedules'
import { type Bound, bindLifecycle, type WrapHandler } from 'phaselock/tasks'
import { type ChunkSize, checkChunkSize, DEFAULT_CHUNK_SIZE } from '../chunk/index.js'
import type { Embeddings } from '../embeddings/index.js'
import { aFunction, anything, type Checks, checkOptions, having } from '../options.js'
import { type Credentials, GitCache, gitlabSource, gitSource, type Source } from '../source/index.js'
import { CollectionMissing, type Hit, type VectorStore } from '../vectors/index.js'
import type { SyncContext } from './context.js'
import { OPEN_PHASES, repositoryDefinition, type SyncLifecycleSettings, syncDefinition } from './definition.js'
import {
  COLLECTIONS,
  type FileRecord,
  type Repository,
  type RepositoryFields,
  type RepositorySync,
} from './documents.js'
import { SyncMetrics } from './metrics.js'
import { Records } from './records.js'
import { checkRepository, InvalidRepository, SYNC_TASK, scheduleIdOf } from './repository-fields.js'
import { repositoryHandlers } from './repository-handlers.js'
import { Shown, type ShownRepository, type ShownSync } from './show.js'
import { syncHandlers } from './sync-handlers.js'

/** The options of `repositories`. */
export interface RepositoriesOptions extends SyncLifecycleSettings {
  readonly db: Db
  readonly store: VectorStore
  readonly embeddings: Embeddings
  /** Default: 7,000 characters, with an overlap of 1,500. */
  readonly chunks?: ChunkSize | undefined
  /** The credentials of a profile that a repository names. Default: repositories with a profile can't be read. */
  readonly credentials?: ((profile: string) => Credentials) | undefined
  /** The cache of repositories that git reads. Default: 5 GB in the folder for temporary files. */
  readonly cache?: GitCache | undefined
  /** The source of a repository. Default: by its `source`, git or GitLab. */
  readonly sourceOf?: ((repository: Repository) => Source) | undefined
  /**
   * The app's schedules, where it has some: made of this package's tasks, and the app's own.
   * @example (tasks) => new Schedules({ db, tasks: { ...mine, ...tasks } })
   */
  readonly schedules?: ((tasks: Readonly<Record<string, Task>>) => Schedules) | undefined
  /** Wraps each handler. */
  readonly wrap?: WrapHandler | undefined
  /** The destination of log lines of searches, and of the schedules that it makes itself. Default: warnings on standard error. */
  readonly logger?: Logger | undefined
}

const OPTIONS: Checks<RepositoriesOptions> = {
  db: having('a Db of the MongoDB driver', 'collection'),
  store: having('a vector store, such as qdrant(client)', 'upsert', 'query'),
  embeddings: having('the result of embeddings()', 'embed'),
  chunks: anything,
  credentials: aFunction,
  cache: (value) => (value === undefined || value instanceof GitCache ? undefined : 'a GitCache'),
  sourceOf: aFunction,
  schedules: aFunction,
  wrap: aFunction,
  logger: anything,
  lockTimeout: anything,
  limits: anything,
  keepFor: anything,
}

const CHUNKS: Checks<ChunkSize> = { characters: anything, overlap: anything }
const SEARCH: Checks<SearchOptions> = { repository: anything, path: anything, limit: anything, signal: anything }

/** Options of a search. */
export interface SearchOptions {
  /** Default: all repositories. */
  readonly repository?: string | undefined
  /** A file, or a folder with all that is below it. */
  readonly path?: string | undefined
  /** Default 10, at most 100. */
  readonly limit?: number | undefined
  readonly signal?: AbortSignal | undefined
}

/** A chunk that a search has found. */
export interface Found {
  readonly repository: string
  readonly path: string
  readonly fromLine: number
  readonly toLine: number
  /** The commit that was last checked to be in the store. */
  readonly commit: string
  /** The cosine similarity, from -1 to 1. */
  readonly score: number
  readonly text: string
}

/** A repository of this name doesn't exist. */
export class NoSuchRepository extends Error {
  override readonly name = 'NoSuchRepository'
  constructor(readonly id: string) {
    super(`expected the repository '${id}', there is none of this name`)
  }
}

/** The vectors of these repositories are of another model than the one that questions are embedded with. */
export class OtherModel extends Error {
  override readonly name = 'OtherModel'
  constructor(
    readonly ids: readonly string[],
    /** The model in force, in words. */
    readonly model: string,
  ) {
    const more = ids.length > 10 ? ` and ${ids.length - 10} more` : ''
    super(`expected vectors of ${model}; ${ids.slice(0, 10).join(', ')}${more}: of another model until their next sync`)
  }
}

/**
 * Repositories that are kept in sync with a vector store: their lifecycles, and what their owners do with them.
 * @example
 * ```ts
 * const repos = repositories({ db, store: qdrant(client), embeddings: embeddings(openAiEmbeddings({ url, key, model }), { kept: mongoVectors(db) }) })
 * await new Replica({ db, lifecycles: repos.lifecycles }).start()
 * await repos.create('billing', { url: 'https://gitlab.example/shop/billing.git', collection: 'code', schedule: { every: '6h' } })
 * const found = await repos.search('where are invoices retried?', { repository: 'billing' })
 * ```
 */
export function repositories(options: RepositoriesOptions): Repositories {
  return new Repositories(options)
}

/** The result of {@link repositories}, and the token by which Nest injects it. */
export class Repositories {
  /** For a replica: `new Replica({ db, lifecycles: repos.lifecycles })`. */
  readonly lifecycles: readonly RunnableLifecycle[]
  readonly schedules: Schedules
  private readonly context: SyncContext
  private readonly warn: (text: string) => void
  private readonly repositories: Bound<ReturnType<typeof repositoryDefinition>>
  private readonly syncsOf: Bound<ReturnType<typeof syncDefinition>>
  private readonly shown: Shown

  /** @throws InvalidOptions, RangeError, InvalidLifecycle */
  constructor(options: RepositoriesOptions) {
    checkOptions('repositories', OPTIONS, options)
    const { db, store, embeddings, chunks = DEFAULT_CHUNK_SIZE, wrap, logger, lockTimeout, limits, keepFor } = options
    checkChunkSize(checkOptions('repositories: chunks', CHUNKS, chunks))
    const settings = { lockTimeout, limits, keepFor }
    const context: { -readonly [K in keyof SyncContext]: SyncContext[K] } = {
      db,
      store,
      embeddings,
      chunks,
      records: new Records(db),
      metrics: new SyncMetrics(),
      schedules: undefined as never, // below: its task starts a lifecycle whose handlers need the context
      sourceOf: options.sourceOf ?? sourceOf(options),
      cancelSyncs: (repository) => this.cancelSyncs(repository),
    }
    this.syncsOf = bindLifecycle(syncDefinition(settings).handle(syncHandlers(context)), { db, wrap })
    const start = starts(this.syncsOf, ({ repository }: { repository: string }) => ({ repository }))
    const tasks: Readonly<Record<string, Task>> = { [SYNC_TASK]: start }
    context.schedules = options.schedules?.(tasks) ?? new Schedules({ db, tasks, logger })
    this.repositories = bindLifecycle(repositoryDefinition(settings).handle(repositoryHandlers(context)), { db, wrap })
    this.context = context
    this.warn = (text) => (logger ? logger.warn(text) : process.emitWarning(text))
    this.schedules = context.schedules
    this.shown = new Shown(db)
    // Found there by replicaMetrics of phaselock/telemetry.
    const syncs = Object.assign(this.syncsOf, { metrics: context.metrics })
    this.lifecycles = [this.repositories, syncs, ...this.schedules.lifecycles]
  }

  /**
   * Registers a repository: it is checked, its collection and its schedule are made, and its first sync begins.
   * @throws InvalidRepository, DocumentExists
   */
  async create(id: string, fields: RepositoryFields): Promise<void> {
    checkRepository(id, fields)
    await this.context.records.createIndexes()
    await this.repositories.insert({ ...present(fields), _id: id, state: 'Running' })
  }

  /** Changes a repository; it is checked again, and synced by a full comparison. `undefined` removes a field. @throws InvalidRepository, NoSuchRepository */
  async update(id: string, changes: Partial<RepositoryFields>): Promise<void> {
    const before = await this.document(id)
    const { _id, ...fields } = { ...ownFields(before), ...changes }
    checkRepository(id, present(fields) as RepositoryFields)
    const removed = Object.entries(changes).filter(([, value]) => value === undefined)
    const filter = { _id: id, state: { $ne: 'Deleted' as const } }
    const { matchedCount } = await this.context.db.collection<Repository>(COLLECTIONS.repositories).updateOne(filter, {
      ...(Object.keys(present(changes)).length > 0 ? { $set: present(changes) } : {}),
      ...(removed.length > 0 ? { $unset: Object.fromEntries(removed.map(([name]) => [name, ''])) } : {}),
    } as object)
    if (matchedCount === 0) throw new InvalidRepository(id, ['it was removed: create it again once it is gone'])
    await this.repositories.setState(id, 'Updating')
  }

  /** Asks for a sync now; it is Skipped while one is open. @returns the run's id @throws NoSuchRepository */
  async sync(id: string, options: { readonly by?: string | undefined } = {}): Promise<string> {
    const { by } = checkOptions('sync', { by: anything }, options)
    await this.document(id)
    return this.schedules.run(scheduleIdOf(id), { by })
  }

  /** Ends the open sync of a repository as Failed, when its batch is done. @returns the number of open ones */
  async cancel(id: string): Promise<number> {
    return this.cancelSyncs(id)
  }

  /** Removes a repository: its schedule, open sync, points and records. @throws NoSuchRepository */
  async remove(id: string): Promise<void> {
    await this.document(id)
    await this.repositories.setState(id, 'Deleted')
  }

  /** A repository with its latest sync. @throws NoSuchRepository */
  async show(id: string): Promise<ShownRepository> {
    const found = await this.shown.one(id)
    if (!found) throw new NoSuchRepository(id)
    return found
  }

  /** All repositories with their latest syncs, by name. @param options.limit default 1,000 */
  async list(options: { readonly limit?: number | undefined } = {}): Promise<ShownRepository[]> {
    const { limit = 1_000 } = checkOptions('list', { limit: anything }, options)
    return this.shown.some({}, limit)
  }

  /** The latest syncs of a repository, newest first. @param options.limit default 20 */
  async syncs(id: string, options: { readonly limit?: number | undefined } = {}): Promise<ShownSync[]> {
    const { limit = 20 } = checkOptions('syncs', { limit: anything }, options)
    return this.shown.syncs(id, limit)
  }

  /** The records of files, by path, 10,000 at most; `under` a folder. */
  async files(id: string, options: { readonly under?: string | undefined } = {}): Promise<FileRecord[]> {
    const { under } = checkOptions('files', { under: anything }, options)
    return this.context.records.list(id, under)
  }

  /**
   * Searches what was synced. Repositories whose vectors are of another model than this process's are left out, with a warning in the log.
   * @returns best first @throws NoSuchRepository, OtherModel if there are no others
   */
  async search(question: string, options: SearchOptions = {}): Promise<Found[]> {
    const { repository, path, limit = 10, signal } = checkOptions('search', SEARCH, options)
    const most = Math.max(1, Math.min(100, limit))
    const all = repository === undefined ? await this.synced() : [await this.document(repository)]
    const commits = new Map(all.map(({ _id, synced }) => [_id, synced?.commit ?? '']))
    const collections = await this.searchable(all, signal)
    if (collections.length === 0) return []
    const { store, embeddings } = this.context
    const { vectors } = await embeddings.embed([question], { signal: signal ?? new AbortController().signal })
    const hits: Hit[] = []
    for (const collection of collections) {
      try {
        const filter = { repository, under: path }
        hits.push(...(await store.query(collection, vectors[0]!, { filter, limit: most, signal })))
      } catch (error) {
        if (!(error instanceof CollectionMissing)) throw error // the next sync makes it again
      }
    }
    return hits
      .sort((a, b) => b.score - a.score)
      .slice(0, most)
      .map(({ repository: of, path: at, fromLine, toLine, score, text }) => ({
        ...{ repository: of, path: at, fromLine, toLine, score, text },
        commit: commits.get(of) ?? '',
      }))
  }

  /** The collections of these repositories with vectors that a question of this process's model can be compared with. @throws OtherModel */
  private async searchable(all: readonly Repository[], signal: AbortSignal | undefined): Promise<string[]> {
    const { store, embeddings } = this.context
    const names = [...new Set(all.flatMap(({ synced }) => synced?.collection ?? []))]
    const found = await Promise.all(names.map((name) => store.describe(name, { signal })))
    const others = names.filter((_, i) => {
      const { model, dimensions } = found[i] ?? embeddings
      return model !== embeddings.model || dimensions !== embeddings.dimensions
    })
    if (others.length === 0) return names
    const ids = all.filter(({ synced }) => synced && others.includes(synced.collection)).map(({ _id }) => _id)
    const error = new OtherModel(ids, `${embeddings.model} with ${embeddings.dimensions} dimensions`)
    if (others.length === names.length) throw error
    this.warn(`a search leaves repositories out: ${error.message}`)
    return names.filter((name) => !others.includes(name))
  }

  private async document(id: string): Promise<Repository> {
    const found = await this.context.db.collection<Repository>(COLLECTIONS.repositories).findOne({ _id: id })
    if (!found) throw new NoSuchRepository(id)
    return found
  }

  private synced(): Promise<Repository[]> {
    const filter = { synced: { $exists: true } }
    return this.context.db.collection<Repository>(COLLECTIONS.repositories).find(filter).limit(10_000).toArray()
  }

  private async cancelSyncs(repository: string): Promise<number> {
    const open = await this.context.db
      .collection<RepositorySync>(COLLECTIONS.syncs)
      .find({ repository, phase: { $in: [...OPEN_PHASES] } }, { projection: { _id: 1 } })
      .toArray()
    for (const { _id } of open) await this.syncsOf.setState(_id, 'Cancelled')
    return open.length
  }
}

function sourceOf({ credentials, cache }: RepositoriesOptions): (repository: Repository) => Source {
  let shared = cache
  return ({ _id, url, source, profile }) => {
    if (profile !== undefined && !credentials)
      throw new InvalidRepository(_id, [`its profile is '${profile}', and repositories() has no credentials option`])
    const access = { url, credentials: profile === undefined ? undefined : credentials?.(profile) }
    if (source === 'gitlab') return gitlabSource(access)
    shared ??= new GitCache()
    return gitSource({ ...access, cache: shared })
  }
}

const OWN = ['url', 'source', 'branch', 'include', 'exclude', 'encodings', 'maxFileBytes', 'profile', 'collection']

const ownFields = (repository: Repository): Repository =>
  Object.fromEntries(
    Object.entries(repository).filter(([name]) => [...OWN, '_id', 'schedule', 'isActive'].includes(name)),
  ) as unknown as Repository

const present = <T extends object>(fields: T): T =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T
