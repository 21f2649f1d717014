import type { Db, Document } from 'mongodb'
import { SHARDS } from './cluster.ts'

interface Chunk {
  readonly min: Document
  readonly max: Document
  readonly shard: string
}

/** Shards a collection, that by a hash in four chunks, two on each shard. */
export async function shard(db: Db, name: string, key: Document): Promise<void> {
  const collection = db.collection(name)
  const admin = db.client.db('admin')
  await collection.createIndex(key)
  await admin.command({ enableSharding: db.databaseName })
  const isEmpty = (await collection.countDocuments()) === 0
  const chunks = isEmpty && Object.values(key).includes('hashed') ? { numInitialChunks: 4 } : {}
  await admin.command({ shardCollection: collection.namespace, key, ...chunks })
}

/** In order of their keys. */
export async function chunksOf(db: Db, name: string): Promise<Chunk[]> {
  const namespace = `${db.databaseName}.${name}`
  const config = db.client.db('config')
  const { uuid } = (await config.collection('collections').findOne({ _id: namespace as never }))!
  // By version of the server.
  return config
    .collection<Document & Chunk>('chunks')
    .find({ $or: [{ ns: namespace }, { uuid }] })
    .sort({ min: 1 })
    .toArray()
}

/** Moves a chunk to the other shard. What the old shard has of it is deleted before this resolves, or some time later. */
export async function move(
  db: Db,
  name: string,
  { min, max, shard }: Chunk,
  { waitForDelete }: { waitForDelete: boolean },
): Promise<void> {
  const to = SHARDS.find((name) => name !== shard)
  const bounds = [min, max]
  const moveChunk = `${db.databaseName}.${name}`
  await db.client.db('admin').command({ moveChunk, bounds, to, _waitForDelete: waitForDelete })
}
