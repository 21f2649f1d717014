import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { QdrantClient } from '@qdrant/js-client-rest'
import { type Embeddings, qdrant, type Repositories, repositories, type VectorStore } from 'phaselock-repositories'
import { Fleet } from '../../../chaos/proof/fleet.ts'
import { compared } from '../../../chaos/sync/points.ts'
import { CALLS, type SyncReplicaConfig } from '../../../chaos/sync/replica-config.ts'
import { pauseWorker, workerOf } from '../../../chaos/sync/worker.ts'
import { installQdrant, type QdrantServer, startQdrant } from '../../../tools/servers/qdrant.mjs'
import { ServerMissing } from '../../../tools/servers/server-missing.mjs'
import { eventually, useDatabase } from '../../support/database.js'
import { describeWith } from '../../support/describe-with.js'
import { TestRepository } from './support/repository.js'

const PROGRAM = fileURLToPath(new URL('../../../chaos/sync/replica-process.ts', import.meta.url))
const CHUNKS = { characters: 100, overlap: 20 }
const WHERE = { repository: 'r', collection: 'code' }
const FILES = 700
const FOR_MS = 120_000
const none: Embeddings = {
  model: 'slow',
  dimensions: 32,
  embed: async () => {
    throw new Error('the test embeds nothing')
  },
}

const describeEngine = await describeWith("Qdrant's engine", installQdrant, ServerMissing)
describeEngine('three processes, on git and on Qdrant’s engine', () => {
  const database = useDatabase()
  let server: QdrantServer
  let repository: TestRepository
  let folder: string
  let store: VectorStore
  let repos: Repositories
  let fleet: Fleet<SyncReplicaConfig>
  beforeEach(async () => {
    server = await startQdrant()
    repository = await TestRepository.create()
    folder = await mkdtemp(join(tmpdir(), 'phaselock-caches-'))
    store = qdrant(new QdrantClient({ url: server.url, checkCompatibility: false }))
    repos = repositories({ db: database.db, store, embeddings: none })
    fleet = new Fleet([PROGRAM], {
      ...{ uri: database.uri, database: database.db.databaseName, qdrantUrl: server.url, caches: folder },
      ...{ chunks: CHUNKS, model: 'words', delayMs: 10 },
    })
  }, 240_000)
  afterEach(async () => {
    await fleet.end()
    await server.stop()
    await repository[Symbol.asyncDispose]()
    await rm(folder, { recursive: true, force: true })
  })

  const rightly = (files: Readonly<Record<string, string>>) => {
    const points = Object.keys(files).length // each is one chunk
    return { points, expected: points, duplicates: 0, missing: 0, stale: 0 }
  }
  const looked = (files: Readonly<Record<string, string>>) =>
    compared(store, WHERE, new Map(Object.entries(files)), CHUNKS)

  test('one is killed and one is paused past its lease: each point once, no batch embedded from its start again', async () => {
    const files = Object.fromEntries(
      Array.from({ length: FILES }, (_, i) => [`d${i % 9}/f${i}.ts`, `const name${i} = ${i}\n`]),
    )
    await repository.commit(files)
    for (const name of ['pod-a', 'pod-b', 'pod-c']) await fleet.start(name)
    await repos.create('r', { url: repository.folder, collection: 'code' })

    const first = await workerOf(repos, 'r', fleet, 1)
    first.kill()
    await first.ended
    const second = await pauseWorker(repos, 'r', fleet, 1)
    await eventually(async () => expect((await repos.syncs('r'))[0]).toMatchObject({ status: 'completed' }), {
      timeoutMs: FOR_MS,
    })
    second.resume()

    expect(await looked(files)).toEqual(rightly(files))
    const next = { ...files, 'd0/f0.ts': 'const other = 0\n', more: 'more\n' } as Record<string, string>
    delete next['d1/f1.ts']
    await repository.commit(next)
    const run = await repos.sync('r', { by: 'test' })
    await eventually(
      async () =>
        expect((await repos.syncs('r')).find(({ _id }) => _id === run)).toMatchObject({ status: 'completed' }),
      { timeoutMs: FOR_MS },
    )
    expect(await looked(next)).toEqual(rightly(next))
    // Texts that were embedded before a kill were kept: at most the calls that ran at the kill and at the pause were made twice.
    const calls = (await database.db.collection<{ texts: number }>(CALLS).find().toArray()) as { texts: number }[]
    expect(calls.reduce((sum, { texts }) => sum + texts, 0)).toBeLessThanOrEqual(FILES + 2 + 2 * 32)
  })
})
