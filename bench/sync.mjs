import { memory } from '../packages/repositories/dist/index.js'
import { child } from './child.mjs'
import { median, rounded } from './statistics.mjs'
import { hashedVector, manyFiles, syncing } from './sync-world.mjs'

const SIZES = {
  quick: { unchanged: 2_000, first: 400, memory: 10_000, rounds: 3 },
  full: { unchanged: 10_000, first: 2_000, memory: 100_000, rounds: 5 },
}
/** A small model on the processor of the machine, such as wordllama, takes so long for a chunk. */
const MODEL_MS = 7

/**
 * Syncs of a repository, read by git: one with nothing new, at the same commit and at another one; a first one with a model that takes 7 ms a chunk;
 * and the resident memory of a process that indexes many files. The vector store is this process, or counts only.
 */
export async function run(server, { quick, rounds: asked, progress }) {
  const sizes = quick ? SIZES.quick : SIZES.full
  const figures = { wrong: 0, files: sizes }
  Object.assign(figures, await unchanged(server, sizes.unchanged, asked ?? sizes.rounds, progress, figures))
  Object.assign(figures, await first(server, sizes.first, progress, figures))
  Object.assign(figures, await resident(server, sizes.memory, progress, figures))
  return figures
}

const isRight = ({ status, result, counters }, files) =>
  status === 'completed' && result.files === files && counters.mended === 0

async function unchanged(server, files, rounds, progress, figures) {
  const origin = await manyFiles(files, 500)
  const embeddings = modelOf(() => undefined)
  const world = await syncing({ db: server.database(), origin: origin.folder, store: memory(), embeddings })
  const check = (sync) => {
    if (!isRight(sync, files)) figures.wrong += 1
    return sync
  }
  try {
    check(await world.first())
    const same = []
    const other = []
    let requests = 0
    for (let round = 0; round < rounds; round += 1) {
      same.push(check(await world.again()).durationSeconds)
      requests = Math.max(
        requests,
        ...Object.values(world.calls),
        world.calls.head + world.calls.tree + world.calls.blobs,
      )
      await origin.change(round)
      const sync = check(await world.again())
      if (sync.counters.changed !== 1) figures.wrong += 1
      other.push(sync.durationSeconds)
      progress(`${files} files, same commit: ${same.at(-1)} s; another one: ${other.at(-1)} s`)
    }
    return {
      sameCommitRequests: requests,
      sameCommitSeconds: rounded(median(same), 3),
      otherCommitSeconds: rounded(median(other), 3),
    }
  } finally {
    await world.close()
    await origin.remove()
  }
}

async function first(server, files, progress, figures) {
  const origin = await manyFiles(files, 8_000)
  const model = { ms: 0 }
  const embeddings = modelOf(async (texts) => {
    const started = performance.now()
    await new Promise((resolve) => setTimeout(resolve, texts.length * MODEL_MS))
    model.ms += performance.now() - started
  })
  const world = await syncing({ db: server.database(), origin: origin.folder, store: memory(), embeddings })
  try {
    const sync = await world.first()
    if (!isRight(sync, files)) figures.wrong += 1
    const { durationSeconds, stages, result } = sync
    progress(`first sync of ${files} files: ${durationSeconds} s, of which the model ${rounded(model.ms / 1_000, 1)} s`)
    return {
      firstSyncSeconds: durationSeconds,
      firstSyncChunks: result.chunks,
      oursShare: rounded(1 - model.ms / (durationSeconds * 1_000), 3),
      stages,
    }
  } finally {
    await world.close()
    await origin.remove()
  }
}

/** In a process of its own, with a store that only counts: what is measured is what a sync takes. */
async function resident(server, files, progress, figures) {
  const origin = await manyFiles(files, 2_000)
  const process = child('sync-process.mjs', 'the process that indexes')
  try {
    const answer = await process.ask({
      uri: server.uri,
      database: server.database().databaseName,
      origin: origin.folder,
    })
    if (!isRight(answer.sync, files)) figures.wrong += 1
    progress(`resident memory while ${files} files are indexed: ${answer.rssMb} MB`)
    return { rssIndexingMb: answer.rssMb, indexingSeconds: answer.sync.durationSeconds }
  } finally {
    await process.close()
    await origin.remove()
  }
}

function modelOf(before) {
  return {
    model: 'hashed',
    dimensions: 64,
    async embed(texts) {
      await before(texts)
      const vectors = texts.map((text) => hashedVector(text))
      return { vectors, embedded: texts.length, reused: 0, beyondWindow: 0 }
    },
  }
}
