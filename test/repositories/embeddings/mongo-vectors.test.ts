import { expect, test } from '@jest/globals'
import { embeddings, mongoVectors } from '../../../packages/repositories/src/embeddings/index.js'
import { useDatabase } from '../../support/database.js'
import { hashedEmbedder } from '../hashed-embedder.js'

const database = useDatabase()
const signal = new AbortController().signal
const texts = Array.from({ length: 300 }, (_, i) => `text number ${i}`)

test('vectors are kept for 30 days by the server’s clock, and other processes reuse them', async () => {
  const { db } = database
  const first = await embeddings(hashedEmbedder(), { kept: mongoVectors(db) }).embed(texts, { signal })
  expect(first).toMatchObject({ embedded: 300, reused: 0 })
  const again = await embeddings(hashedEmbedder(), { kept: mongoVectors(db) }).embed(texts, { signal })
  expect(again).toMatchObject({ embedded: 0, reused: 300 })
  expect(again.vectors).toEqual(first.vectors)
  const [kept] = await db
    .collection('phaselock.vectors')
    .aggregate([
      { $limit: 1 },
      { $project: { days: { $divide: [{ $subtract: ['$keptUntil', '$$NOW'] }, 86_400_000] } } },
    ])
    .toArray()
  expect(kept!['days']).toBeCloseTo(30, 1)
  const indexes = await db.collection('phaselock.vectors').indexes()
  expect(indexes).toContainEqual(expect.objectContaining({ key: { keptUntil: 1 }, expireAfterSeconds: 0 }))
})

test('a vector that is read stays for 30 days more; a fresh one costs no write', async () => {
  const kept = mongoVectors(database.db)
  await embeddings(hashedEmbedder(), { kept }).embed(texts.slice(0, 3), { signal })
  const records = database.db.collection<{ _id: string; keptUntil: Date }>('phaselock.vectors')
  const [a, b, c] = await records.find().toArray()
  const soon = new Date(Date.now() + 86_400_000)
  await records.updateMany({ _id: { $in: [a!._id, b!._id] } }, { $set: { keptUntil: soon } })
  expect((await kept.get([a!._id, c!._id])).size).toBe(2)
  const until = new Map((await records.find().toArray()).map(({ _id, keptUntil }) => [_id, keptUntil.getTime()]))
  expect(until.get(a!._id)).toBeGreaterThan(soon.getTime() + 28 * 86_400_000)
  expect(until.get(b!._id)).toBe(soon.getTime())
  expect(until.get(c!._id)).toBe(c!.keptUntil.getTime())
})

test('replicas that keep the same vectors at the same time both succeed', async () => {
  const replicas = Array.from({ length: 4 }, () => embeddings(hashedEmbedder(), { kept: mongoVectors(database.db) }))
  await Promise.all(replicas.map((one) => one.embed(texts, { signal })))
  expect(await database.db.collection('phaselock.vectors').countDocuments()).toBe(300)
})

test('records that somebody has edited are embedded again', async () => {
  const kept = mongoVectors(database.db)
  await embeddings(hashedEmbedder(), { kept }).embed(texts.slice(0, 3), { signal })
  const records = database.db.collection('phaselock.vectors')
  const [a, b, c] = await records.find().toArray()
  await records.updateOne({ _id: a!._id }, { $set: { vector: 'edited' } })
  await records.updateOne({ _id: b!._id }, { $unset: { vector: '' } })
  const other = await mongoVectors(database.db).get([String(c!._id)])
  await kept.set(new Map([[String(c!._id), [...other.values()][0]!.slice(1)]]))
  expect(await embeddings(hashedEmbedder(), { kept }).embed(texts.slice(0, 3), { signal })).toMatchObject({
    embedded: 3,
  })
  expect(await embeddings(hashedEmbedder(), { kept }).embed(texts.slice(0, 3), { signal })).toMatchObject({ reused: 3 })
})
