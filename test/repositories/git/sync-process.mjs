// A replica in a process of its own, for tests that kill or pause one: `node sync-process.mjs <uri> <name> <url of Qdrant> <folder of caches>`.
import { createHash } from 'node:crypto'
import { QdrantClient } from '@qdrant/js-client-rest'
import { MongoClient } from 'mongodb'
import { Replica } from '../../../dist/index.js'
import { embeddings, GitCache, mongoVectors, qdrant, repositories } from '../../../packages/repositories/dist/index.js'

const [uri, name, qdrantUrl, caches] = process.argv.slice(2)
const client = await new MongoClient(uri).connect()
const db = client.db()

/** Words hashed into 32 numbers, slowly. */
const model = {
  model: 'slow',
  dimensions: 32,
  async embed(texts) {
    await db.collection('calls').insertOne({ by: name, texts: texts.length })
    await new Promise((resolve) => setTimeout(resolve, 10 * texts.length))
    return texts.map((text) => {
      const vector = new Array(32).fill(0.01)
      for (const word of text.match(/\w+/g) ?? []) vector[createHash('md5').update(word).digest()[0] % 32] += 1
      return vector
    })
  },
}
const repos = repositories({
  db,
  store: qdrant(new QdrantClient({ url: qdrantUrl, checkCompatibility: false })),
  embeddings: embeddings(model, { kept: mongoVectors(db) }),
  cache: new GitCache({ folder: caches }),
  chunks: { characters: 100, overlap: 20 },
  lockTimeout: '3s',
})
const replica = new Replica({ db, lifecycles: repos.lifecycles, name })
await replica.start()
process.stdout.write('ready\n')
process.on('SIGTERM', async () => {
  await replica.stop()
  await client.close()
})
