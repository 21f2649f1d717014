import { createHash } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { QdrantClient } from '@qdrant/js-client-rest'
import { connectWith } from '../../dist/database/index.js'
import {
  type Embedder,
  embeddings,
  GitCache,
  mongoVectors,
  qdrant,
  repositories,
} from '../../packages/repositories/dist/index.js'
import { wordllama } from '../../tools/embeddings/wordllama.mjs'
import { ReplicaLife } from '../proof/replica-life.ts'
import { CALLS, type SyncReplicaConfig } from './replica-config.ts'

const LOCK_TIMEOUT = '3s'
const DIMENSIONS = 32

/** Words hashed into 32 numbers. */
const words: Embedder = {
  model: 'words',
  dimensions: DIMENSIONS,
  embed: async (texts) =>
    texts.map((text) => {
      const vector = new Array<number>(DIMENSIONS).fill(0.01)
      for (const word of text.match(/\w+/g) ?? [])
        vector[createHash('md5').update(word).digest()[0]! % DIMENSIONS]! += 1
      return vector
    }),
}

const run = async (config: SyncReplicaConfig & { readonly name: string }, life: ReplicaLife<typeof config>) => {
  const { uri, database, name, qdrantUrl, caches, chunks, delayMs } = config
  const { db, close } = await connectWith({ uri, database, lockTimeout: LOCK_TIMEOUT, timeout: '1m' })
  const inner = config.model === 'wordllama' ? await wordllama() : words
  const model: Embedder = {
    ...inner,
    async embed(texts, options) {
      await db.collection(CALLS).insertOne({ by: name, texts: texts.length })
      await delay(delayMs * texts.length)
      return inner.embed(texts, options)
    },
  }
  const repos = repositories({
    db,
    store: qdrant(new QdrantClient({ url: qdrantUrl, checkCompatibility: false })),
    embeddings: embeddings(model, { kept: mongoVectors(db) }),
    cache: new GitCache({ folder: caches }),
    chunks,
    lockTimeout: LOCK_TIMEOUT,
    logger: life.logger,
  })
  await life.live({ db, lifecycles: repos.lifecycles, name }, close)
}

new ReplicaLife(run)
