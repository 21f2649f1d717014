import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { QdrantClient } from '@qdrant/js-client-rest'
import {
  chunksOf,
  type Embeddings,
  qdrant,
  type Repositories,
  repositories,
  type VectorStore,
} from 'phaselock-repositories'
import { installQdrant, type QdrantServer, startQdrant } from '../../../tools/servers/qdrant.mjs'
import { ServerMissing } from '../../../tools/servers/server-missing.mjs'
import { eventually, useDatabase } from '../../support/database.js'
import { describeWith } from '../../support/describe-with.js'
import { pointsOf, sha1 } from '../sync/support.js'
import { TestRepository } from './support/repository.js'

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
  const children: ChildProcess[] = []
  beforeEach(async () => {
    server = await startQdrant()
    repository = await TestRepository.create()
    folder = await mkdtemp(join(tmpdir(), 'phaselock-caches-'))
    store = qdrant(new QdrantClient({ url: server.url, checkCompatibility: false }))
    repos = repositories({ db: database.db, store, embeddings: none })
  }, 240_000)
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
    await server.stop()
    await repository[Symbol.asyncDispose]()
    await rm(folder, { recursive: true, force: true })
  })

  async function start(name: string): Promise<ChildProcess> {
    const program = fileURLToPath(new URL('sync-process.mjs', import.meta.url))
    const child = spawn(process.execPath, [program, database.uri, name, server.url, folder], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    children.push(child)
    await once(createInterface({ input: child.stdout! }), 'line')
    return child
  }

  const truth = (files: Readonly<Record<string, string>>) =>
    Object.entries(files)
      .flatMap(([path, text]) =>
        chunksOf(text, { characters: 100, overlap: 20 }).map(
          ({ lines, text: part }) => `${path}:${lines.from}-${lines.to} ${sha1(part).slice(0, 8)}`,
        ),
      )
      .sort()

  /** The process that works on the open sync, once a batch of it is done. */
  async function worker(batches: number): Promise<string> {
    let by = ''
    await eventually(
      async () => {
        const { sync, text } = await repos.show('r')
        expect(sync).toMatchObject({ phase: 'Indexing' })
        expect(sync!.next ?? 0).toBeGreaterThanOrEqual(batches)
        by = / by (\S+)$/.exec(text)?.[1] ?? ''
        expect(by).not.toBe('')
      },
      { timeoutMs: FOR_MS, everyMs: 50 },
    )
    return by
  }

  test('one is killed and one is paused past its lease: each point once, no batch embedded from its start again', async () => {
    const files = Object.fromEntries(
      Array.from({ length: FILES }, (_, i) => [`d${i % 9}/f${i}.ts`, `const name${i} = ${i}\n`]),
    )
    await repository.commit(files)
    const pods = new Map<string, ChildProcess>()
    for (const name of ['pod-a', 'pod-b', 'pod-c']) pods.set(name, await start(name))
    await repos.create('r', { url: repository.folder, collection: 'code' })

    const first = await worker(1)
    pods.get(first)!.kill('SIGKILL')
    pods.delete(first)
    await eventually(async () => expect((await repos.show('r')).text).not.toContain(` by ${first}`), {
      timeoutMs: FOR_MS,
    })
    const second = await worker(1)
    pods.get(second)!.kill('SIGSTOP')
    await eventually(async () => expect((await repos.syncs('r'))[0]).toMatchObject({ status: 'completed' }), {
      timeoutMs: FOR_MS,
    })
    pods.get(second)!.kill('SIGCONT')

    expect(await pointsOf(store)).toEqual(truth(files))
    const next = { ...files, 'd0/f0.ts': 'const other = 0\n', more: 'more\n' } as Record<string, string>
    delete next['d1/f1.ts']
    await repository.commit(next)
    const run = await repos.sync('r', { by: 'test' })
    await eventually(
      async () =>
        expect((await repos.syncs('r')).find(({ _id }) => _id === run)).toMatchObject({ status: 'completed' }),
      { timeoutMs: FOR_MS },
    )
    expect(await pointsOf(store)).toEqual(truth(next))
    // Texts that were embedded before a kill were kept: at most the calls that ran at the kill and at the pause were made twice.
    const calls = (await database.db.collection<{ texts: number }>('calls').find().toArray()) as { texts: number }[]
    expect(calls.reduce((sum, { texts }) => sum + texts, 0)).toBeLessThanOrEqual(FILES + 2 + 2 * 32)
  })
})
