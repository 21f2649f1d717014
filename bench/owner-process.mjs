/** A program, forked by owner.mjs: an owner of documents beside the replicas. */
import { setTimeout as sleep } from 'node:timers/promises'
import { protocolClient } from '../dist/database/index.js'
import { monotonicMs, PROBES, PROBES_LOCK_TIMEOUT_MS, probes, TIMED } from './probes.mjs'

const BATCH_EVERY_MS = 50
/** One load document of so many is slow, one of so many is timed. */
const ONE_IS_SLOW = 500
const ONE_IS_TIMED = 50

let client
let collection
let owner
let loading = false
let inserted = 0

/** Acknowledged inserts of probes by tag: when the server's reply had come, before anything that the API does after it. */
const acknowledged = new Map()
const onTheirWay = new Map()

async function connect({ uri, database }) {
  client = protocolClient(uri, { monitorCommands: true })
  client.on('commandStarted', ({ commandName, command, requestId }) => {
    const tag = commandName === 'insert' && command.insert === PROBES ? command.documents?.[0]?.tag : undefined
    if (tag !== undefined) onTheirWay.set(requestId, tag)
  })
  client.on('commandSucceeded', ({ requestId }) => {
    const tag = onTheirWay.get(requestId)
    if (tag === undefined) return
    onTheirWay.delete(requestId)
    acknowledged.set(tag, monotonicMs())
  })
  await client.connect()
  const db = client.db(database)
  collection = db.collection(PROBES)
  owner = probes.handle({ Creating: async (_doc, step) => step.moveTo('Created') }).attach(db)
}

/** One document after the other, by the owner's API or by hand. @returns when each insert was acknowledged, by tag */
async function probe({ by, tag, count, everyMs }) {
  acknowledged.clear()
  const underWay = []
  for (let i = 0; i < count; i += 1) {
    const document = { phase: 'Creating', kind: 'pick', tag: `${tag}-${i}` }
    underWay.push(by === 'doorbell' ? owner.insert(document) : collection.insertOne(document))
    await sleep(everyMs * (0.8 + 0.4 * Math.random()))
  }
  await Promise.all(underWay)
  return { acknowledged: [...acknowledged] }
}

const loadDocument = (i) => ({
  phase: 'Creating',
  ...(i % ONE_IS_TIMED === 0 ? { _id: `${TIMED}${process.pid}-${i}` } : {}),
  ...(i % ONE_IS_SLOW === ONE_IS_SLOW - 1 ? { kind: 'slow' } : {}),
})

/** So many documents a second, by the owner's API or by hand, until told to stop; first `ahead` of them at once. */
async function load({ by, perSecond, ahead = 0 }) {
  loading = true
  const startedMs = monotonicMs()
  let due = ahead
  let begun = 0
  while (loading) {
    const count = Math.floor(due) - begun
    if (count > 0) {
      const documents = Array.from({ length: count }, (_, i) => loadDocument(inserted + i))
      inserted += count
      begun += count
      await (by === 'doorbell' ? owner.insertMany(documents) : collection.insertMany(documents, { ordered: false }))
    }
    await sleep(BATCH_EVERY_MS)
    due = ahead + (perSecond * (monotonicMs() - startedMs)) / 1_000
  }
}

/** Documents at once, by the owner's API. */
async function burst({ count }) {
  const startedMs = monotonicMs()
  inserted += count
  await owner.insertMany(Array.from({ length: count }, () => ({ phase: 'Creating' })))
  return { startedMs }
}

/** Documents that wait from their first step on, and documents of a holder that has crashed; each is due at a time of its own. */
async function sleepers({ count, fromMs, everyMs }) {
  const waiting = Array.from({ length: count }, (_, i) => ({
    phase: 'Creating',
    kind: 'wait',
    forMs: Math.round(fromMs + i * everyMs),
  }))
  await owner.insertMany(waiting)
  const dueAt = (i) => ({ $add: ['$$NOW', Math.round(fromMs + (i + 0.5) * everyMs)] })
  await Promise.all(
    waiting.map((_, i) =>
      collection.updateOne(
        { _id: `crash-${i}` },
        [
          { $set: { phase: 'Creating', kind: 'crash', lockedBy: 'gone~000#1.1', fence: 1, dueAt: dueAt(i) } },
          { $set: { lockedAt: { $subtract: ['$dueAt', PROBES_LOCK_TIMEOUT_MS] } } },
        ],
        { upsert: true },
      ),
    ),
  )
  return {}
}

const DO = {
  connect: async (given) => {
    await connect(given)
    return {}
  },
  probe,
  burst,
  sleepers,
  async load(given) {
    load(given).catch((error) => {
      console.error(error)
      process.exit(1)
    })
    return {}
  },
  async stop() {
    loading = false
    return { inserted }
  },
}

process.on('message', async ({ kind, ...given }) => process.send(await DO[kind](given)))
process.on('disconnect', async () => {
  await client?.close()
  process.exit(0)
})
