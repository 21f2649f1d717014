import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { QdrantClient } from '@qdrant/js-client-rest'
import { type CleanUp, withCleanUps } from '../../dist/cli/demo/clean-ups.js'
import { openDemoDatabase } from '../../dist/cli/demo/demo-database.js'
import { ReplicaFailed } from '../../dist/cli/processes/replica-process.js'
import {
  embeddings,
  qdrant,
  type Repositories,
  repositories,
  type ShownSync,
} from '../../packages/repositories/dist/index.js'
import { TestRepository } from '../../test/repositories/git/support/repository.ts'
import { wordllama } from '../../tools/embeddings/wordllama.mjs'
import { startQdrant } from '../../tools/servers/qdrant.mjs'
import { Fleet } from '../proof/fleet.ts'
import type { Screen } from '../proof/screen.ts'
import { waitFor } from '../proof/wait-for.ts'
import { change, chooseFiles } from './files.ts'
import { compared } from './points.ts'
import { QUERIES } from './queries.ts'
import type { SyncReplicaConfig } from './replica-config.ts'
import { judgeSync, type SyncReport } from './verdict.ts'
import { pauseWorker, workerOf } from './worker.ts'

const PROGRAM = fileURLToPath(new URL('./replica-process.ts', import.meta.url))
const CHUNKS = { characters: 7_000, overlap: 1_500 }
const WHERE = { repository: 'demo', collection: 'code' }
const { repository: ID } = WHERE
/** A first sync of few files takes about this long, so that there is time for both faults. */
const LEAST_MS = 12_000
const FIRST_FILES = 3
const HITS = 30

export interface SyncOptions {
  readonly files: number
  readonly screen: Screen
  /** Ends the run early; everything is cleaned up, then `Interrupted` is thrown. */
  readonly signal: AbortSignal
}

/**
 * Runs the whole demo in its own database, and leaves nothing behind: no process, no data.
 * @throws WheelMissing where Qdrant's engine or the embedder can't be installed; ReplicaFailed; Interrupted; what connectDatabase throws
 */
export const runSync = (options: SyncOptions): Promise<SyncReport> =>
  withCleanUps(options.signal, (atEnd) => run(options, atEnd))

async function run({ files: count, screen }: SyncOptions, atEnd: (cleanUp: CleanUp) => void): Promise<SyncReport> {
  const server = await startQdrant()
  atEnd(() => server.stop())
  const model = await wordllama()
  const { connection, name: database, close } = await openDemoDatabase((text) => screen.note(text))
  atEnd(close)
  const origin = await TestRepository.create()
  atEnd(async () => origin[Symbol.asyncDispose]())
  const caches = await mkdtemp(join(tmpdir(), 'phaselock-caches-'))
  atEnd(() => rm(caches, { recursive: true, force: true }))

  const files = await chooseFiles(count)
  await origin.commit(files)
  screen.stage(`a repository of ${files.size} files from node_modules, and three replicas`)
  const store = qdrant(new QdrantClient({ url: server.url, checkCompatibility: false }))
  const repos = repositories({ db: connection.db, store, embeddings: embeddings(model), chunks: CHUNKS })
  const config: SyncReplicaConfig = {
    ...{ uri: connection.uri, database, qdrantUrl: server.url, caches, chunks: CHUNKS, model: 'wordllama' },
    delayMs: files.size < 1_000 ? Math.ceil(LEAST_MS / files.size) : 0,
  }
  const fleet = new Fleet([PROGRAM], config)
  atEnd(() => fleet.end())
  await Promise.all(['a', 'b', 'c'].map((name) => fleet.start(name)))

  await repos.create(ID, { url: origin.folder, collection: WHERE.collection })
  const killed = await workerOf(repos, ID, fleet, 1)
  killed.kill()
  await killed.ended
  screen.stage(`replica ${killed.name} is killed while it indexes`)
  const paused = await pauseWorker(repos, ID, fleet, 1)
  screen.stage(`replica ${paused.name} goes on with it, and is paused`)
  const first = await ended({ repos, fleet, screen })
  screen.stage(`another replica has ended the sync; ${paused.name} is continued`)
  paused.resume()
  const isLost = await waitFor(() => paused.said.some((line) => line.includes('lease lost')))
  const before = await compared(store, WHERE, files, CHUNKS)

  const next = change(files)
  await origin.commit(next.files)
  screen.stage(`${next.edited} files edited, ${next.deleted} deleted, a folder of ${next.renamed} renamed`)
  const second = await ended({ repos, fleet, screen, run: await repos.sync(ID, { by: 'demo' }) })
  const after = await compared(store, WHERE, next.files, CHUNKS)
  screen.stage(`${QUERIES.length} queries`)
  const found = await queried(repos, next.pathOf)

  const { added = 0, changed = 0, deleted = 0, renamed = 0, embedded = 0 } = second.counters ?? {}
  const measured = {
    files: files.size,
    points: before.points,
    pointsAfter: after.points,
    duplicates: before.duplicates + after.duplicates,
    missing: before.missing + after.missing,
    stale: before.stale + after.stale,
    firstSeconds: first.durationSeconds ?? 0,
    touched: added + changed + deleted,
    renamed,
    embedded,
    secondSeconds: second.durationSeconds ?? 0,
    queries: QUERIES.length,
    found: QUERIES.length - found.length,
    seconds: screen.seconds,
  }
  const expected = {
    points: before.expected,
    pointsAfter: after.expected,
    touched: next.edited + next.deleted,
    renamed: next.renamed,
    edited: next.edited,
  }
  const missing = isLost ? [] : [`the paused replica, ${paused.name}, to lose its lease`]
  const judgement = judgeSync(measured, expected, missing, fleet.slowness())
  const evidence = judgement.verdict === 'shown' ? [] : [...found, ...fleet.lastWords()]
  return { result: { ...measured, ...judgement }, evidence }
}

interface Waiting {
  readonly repos: Repositories
  readonly fleet: Fleet<SyncReplicaConfig>
  readonly screen: Screen
  /** Default: the latest sync. */
  readonly run?: string
}

/** Waits for the end of a sync. @throws ReplicaFailed, Error when it fails or nothing moves */
async function ended({ repos, fleet, screen, run: id }: Waiting): Promise<ShownSync> {
  let sync: ShownSync | undefined
  const look = async () => {
    const failure = fleet.failure()
    if (failure !== undefined) throw new ReplicaFailed('of the demo', failure)
    const syncs = await repos.syncs(ID)
    sync = id === undefined ? syncs[0] : syncs.find(({ _id }) => _id === id)
    screen.progress(sync?.filesIndexed ?? 0, sync?.filesToIndex ?? 0)
    return sync !== undefined && sync.status !== 'running'
  }
  await waitFor(look, { progress: () => `${sync?.phase} ${sync?.next}` })
  if (sync?.status === 'completed') return sync
  throw new Error(`expected a completed sync: ${sync?.error?.message ?? (await repos.show(ID)).text}`)
}

/** The queries whose file isn't among the first three, each with those that are. */
async function queried(repos: Repositories, pathOf: (path: string) => string): Promise<string[]> {
  const misses: string[] = []
  for (const { question, path } of QUERIES) {
    const hits = await repos.search(question, { repository: ID, limit: HITS })
    const paths = [...new Set(hits.map((hit) => hit.path))].slice(0, FIRST_FILES)
    if (!paths.includes(pathOf(path))) misses.push(`'${question}': expected ${pathOf(path)}, got ${paths.join(', ')}`)
  }
  return misses
}
