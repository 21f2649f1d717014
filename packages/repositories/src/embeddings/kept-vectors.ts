import { Binary, type Collection, type Db } from 'mongodb'
import { anything, checkOptions } from '../options.js'
import type { KeptVectors } from './embedder.js'

const KEPT_FOR_MS = 30 * 86_400_000
/** By the server's clock. */
const UNTIL = { $add: ['$$NOW', KEPT_FOR_MS] }
const IS_AGING = { $lt: ['$keptUntil', { $add: ['$$NOW', KEPT_FOR_MS / 2] }] }
const DUPLICATE_KEY = 11_000
const COLLECTION = 'phaselock.vectors'

interface Stored {
  readonly _id: string
  readonly vector: Binary
  readonly keptUntil: Date
}

/**
 * Keeps vectors in MongoDB, in the collection `phaselock.vectors`, as BSON vectors: 1 KB for 256 numbers. A TTL index removes them 30 days after
 * their last use, by the server's clock.
 * @example
 * ```ts
 * embeddings(embedder, { kept: mongoVectors(db) })
 * ```
 */
export function mongoVectors(db: Db, options: { readonly collection?: string | undefined } = {}): KeptVectors {
  const { collection = COLLECTION } = checkOptions('mongoVectors', { collection: anything }, options)
  const vectors: Collection<Stored> = db.collection(collection)
  let indexed: Promise<unknown> | undefined
  const withIndex = () => {
    indexed ??= vectors.createIndex({ keptUntil: 1 }, { expireAfterSeconds: 0 }).catch((error) => {
      // The next call tries again.
      indexed = undefined
      throw error
    })
    return indexed
  }
  return {
    async get(keys) {
      if (keys.length === 0) return new Map()
      const found = await vectors.find({ _id: { $in: [...keys] } }).toArray()
      // What is used stays; a write for each half of its time is enough.
      if (found.length > 0)
        await vectors.updateMany({ _id: { $in: [...keys] }, $expr: IS_AGING }, [{ $set: { keptUntil: UNTIL } }])
      return new Map(
        found.flatMap(({ _id, vector }) => floatsIn(vector)?.map((floats) => [_id, floats] as const) ?? []),
      )
    },

    async set(entries) {
      if (entries.size === 0) return
      await withIndex()
      const writes = [...entries].map(([_id, vector]) => ({
        updateOne: {
          filter: { _id },
          update: [{ $set: { vector: { $literal: Binary.fromFloat32Array(vector) }, keptUntil: UNTIL } }],
          upsert: true,
        },
      }))
      await vectors.bulkWrite(writes, { ordered: false }).catch((error) => {
        // Another replica has kept the same vector in the same moment.
        if (error?.code !== DUPLICATE_KEY) throw error
      })
    },
  }
}

/** None where the record isn't a vector any more: it was edited by hand. */
function floatsIn(vector: unknown): [Float32Array] | undefined {
  try {
    return [(vector as Binary).toFloat32Array()]
  } catch {
    return undefined
  }
}

/**
 * Keeps vectors in the memory of this process, the `max` that were used last. For tests, and for an app of one replica.
 * @param options.max default 10,000: 10 MB with 256 numbers each
 */
export function memoryVectors(options: { readonly max?: number | undefined } = {}): KeptVectors {
  const max = options.max ?? 10_000
  const vectors = new Map<string, Float32Array>()
  const use = (key: string, vector: Float32Array) => {
    vectors.delete(key)
    vectors.set(key, vector)
  }
  return {
    async get(keys) {
      const found = new Map(keys.flatMap((key) => (vectors.has(key) ? [[key, vectors.get(key)!] as const] : [])))
      for (const [key, vector] of found) use(key, vector)
      return found
    },
    async set(entries) {
      for (const [key, vector] of entries) use(key, vector)
      while (vectors.size > max) vectors.delete(vectors.keys().next().value!)
    },
  }
}
