/** Indexes a repository in this process, and says how much memory that took at most. */
import { connectDatabase } from '../dist/database/index.js'
import { keepHeapLean } from '../dist/index.js'
import { hashedVector, syncing } from './sync-world.mjs'

// As `phaselock start` does.
keepHeapLean()
process.once('message', async ({ uri, database, origin }) => {
  const { client, close } = await connected(uri)
  const embeddings = {
    model: 'hashed',
    dimensions: 64,
    embed: async (texts) => ({
      vectors: texts.map((text) => hashedVector(text)),
      embedded: texts.length,
      reused: 0,
      beyondWindow: 0,
    }),
  }
  const world = await syncing({ db: client.db(database), origin, store: countingStore(), embeddings })
  let rss = 0
  const timer = setInterval(() => {
    rss = Math.max(rss, process.memoryUsage.rss())
  }, 20)
  const { status, result, counters, durationSeconds, error } = await world.first()
  clearInterval(timer)
  process.send({ sync: { status, result, counters, durationSeconds, error }, rssMb: Math.round(rss / 1e6) })
  await world.close()
  await close()
})
process.on('disconnect', () => process.exit())

async function connected(uri) {
  const connection = await connectDatabase({ uri, log: () => undefined })
  return { client: connection.client, close: () => connection.close() }
}

/** Counts the points of a first sync and keeps none: a store is another server's memory. */
function countingStore() {
  let spec
  let points = 0
  return {
    kind: 'counting',
    describe: async () => spec,
    create: async (_collection, given) => {
      spec = given
    },
    drop: async () => undefined,
    upsert: async (_collection, given) => {
      points += given.length
    },
    delete: async () => undefined,
    query: async () => [],
    count: async () => points,
    scroll: async () => ({ points: [], next: undefined }),
  }
}
