import { createHash } from 'node:crypto'
import { afterEach } from '@jest/globals'
import { Replica } from 'phaselock'
import {
  chunksOf,
  type Embeddings,
  type Head,
  memory,
  NoSuchBranch,
  type Repositories,
  type RepositoriesOptions,
  repositories,
  type Source,
  type TreeEntry,
  type VectorStore,
} from 'phaselock-repositories'
import { useDatabase } from '../../support/database.js'
import { recordingLogger } from '../../support/thing.js'

const SIZE = { characters: 100, overlap: 20 }
export const sha1 = (text: string) => createHash('sha1').update(text).digest('hex')

/** A repository in memory: branches of files, whose commits are the hashes of their trees. */
export class MemoryRepository {
  readonly branches = new Map<string, Map<string, string>>()
  private readonly trees = new Map<string, Map<string, string>>()
  /** The calls that it got, by name. */
  calls: string[] = []
  /** Called before each call; what it throws, the call throws. */
  before: (call: string) => void | Promise<void> = () => {}
  /** False: its listings have no sizes, like those of GitLab. */
  hasSizes = true
  /** The content that it has lost. */
  gone: string | undefined

  commit(files: Readonly<Record<string, string>>, branch = 'main'): string {
    const tree = new Map(Object.entries(files))
    const commit = sha1(JSON.stringify([...tree].sort()))
    this.branches.set(branch, tree)
    this.trees.set(commit, tree)
    return commit
  }

  private async called(call: string) {
    this.calls.push(call)
    await this.before(call)
  }

  source(url = 'memory'): Source {
    const self = this
    return {
      url,
      async head(branch = 'main'): Promise<Head> {
        await self.called('head')
        const tree = self.branches.get(branch)
        if (!tree) throw new NoSuchBranch(url, branch, [...self.branches.keys()])
        return { branch, commit: sha1(JSON.stringify([...tree].sort())) }
      },
      async *tree({ commit }): AsyncGenerator<TreeEntry> {
        await self.called('tree')
        for (const [path, text] of self.trees.get(commit)!)
          yield { path, blob: sha1(text), kind: 'file', bytes: self.hasSizes ? Buffer.byteLength(text) : undefined }
      },
      async *blobs({ commit }, blobs, { maxBytes }) {
        await self.called('blobs')
        const texts = new Map([...self.trees.get(commit)!.values()].map((text) => [sha1(text), text]))
        for (const blob of blobs) {
          if (self.gone !== undefined && blob === sha1(self.gone)) {
            yield { blob, missing: 'gone' }
            continue
          }
          const content = Buffer.from(texts.get(blob)!)
          yield content.length > maxBytes ? { blob, missing: 'too large' } : { blob, content }
        }
      },
    }
  }
}

/** A model of 8 dimensions that counts its texts; equal texts are embedded once. */
export function countingEmbeddings(model = 'count', before: (texts: readonly string[]) => void = () => {}) {
  const kept = new Map<string, Float32Array>()
  const counts = { embedded: 0 }
  const embeddings: Embeddings = {
    model,
    dimensions: 8,
    async embed(texts) {
      before(texts)
      const fresh = new Set(texts.filter((text) => !kept.has(text)))
      for (const text of fresh) {
        const bytes = createHash('sha256').update(text).digest()
        kept.set(
          text,
          Float32Array.from(bytes.subarray(0, 8), (byte) => byte - 128),
        )
      }
      counts.embedded += fresh.size
      const vectors = texts.map((text) => kept.get(text)!)
      return { vectors, embedded: fresh.size, reused: new Set(texts).size - fresh.size, beyondWindow: 0 }
    },
  }
  return { embeddings, counts }
}

/** Repositories on a database and a store in memory, driven tick by tick. */
export function useRepositories() {
  const database = useDatabase()
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })

  function world(options: Partial<RepositoriesOptions> = {}) {
    const origin = new MemoryRepository()
    const store: VectorStore = options.store ?? memory()
    const model = countingEmbeddings()
    const logger = recordingLogger()
    const repos = repositories({
      db: database.db,
      store,
      embeddings: model.embeddings,
      sourceOf: () => origin.source(),
      chunks: SIZE,
      logger,
      ...options,
    })
    const replica = new Replica({
      db: options.db ?? database.db,
      lifecycles: repos.lifecycles,
      logger,
      grace: '100ms',
      doorbell: 'off',
    })
    replicas.push(replica)
    let prepared: Promise<void> | undefined
    const runOnce = replica.runOnce.bind(replica)
    replica.runOnce = async () => {
      prepared ??= replica.prepare()
      await prepared
      return runOnce()
    }
    return { origin, store, model, repos, replica, logger }
  }

  /** Runs what is due, and lets what sleeps look again, until a sync has ended. */
  async function settled({ repos, replica }: { repos: Repositories; replica: Replica }, id: string, run?: string) {
    for (let i = 0; i < 50; i += 1) {
      await replica.runOnce()
      const [latest] = await repos.syncs(id)
      if (latest && latest.status !== 'running' && (run === undefined || latest._id === run)) return latest
      for (const name of ['Repository', 'RepositorySync', 'runs', 'schedules'])
        await database.db
          .collection(name)
          .updateMany(
            { lockedAt: { $lt: new Date('9999-01-01') }, lockedBy: { $exists: false } },
            { $set: { lockedAt: new Date(0) } },
          )
    }
    throw new Error(`no sync of ${id} has ended: ${JSON.stringify(await repos.show(id))}`)
  }

  /** Creates a repository and waits for its first sync. */
  async function created(one: ReturnType<typeof world>, fields: object = {}, id = 'r') {
    await one.repos.create(id, { url: 'https://git.example/group/project', collection: 'code', ...fields })
    return settled(one, id)
  }

  /** Asks for a sync and waits for its end. */
  async function synced(one: ReturnType<typeof world>, id = 'r') {
    return settled(one, id, await one.repos.sync(id, { by: 'test' }))
  }

  return { database, world, settled, created, synced }
}

/** What a store must hold of a commit, with the chunk size of `world`. */
export const truthOf = (files: Readonly<Record<string, string>>): string[] =>
  Object.entries(files)
    .flatMap(([path, text]) =>
      chunksOf(text, SIZE).map(
        ({ lines, text: part }) => `${path}:${lines.from}-${lines.to} ${sha1(part).slice(0, 8)}`,
      ),
    )
    .sort()

/** What a store holds of a repository: each chunk as `path:from-to blob`. */
export async function pointsOf(store: VectorStore, repository = 'r', collection = 'code'): Promise<string[]> {
  const { points } = await store.scroll(collection, { repository }, { limit: 10_000 })
  return points
    .map(({ path, fromLine, toLine, text }) => `${path}:${fromLine}-${toLine} ${sha1(text).slice(0, 8)}`)
    .sort()
}
