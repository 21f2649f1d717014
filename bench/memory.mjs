import { setTimeout as sleep } from 'node:timers/promises'
import { protocolClient } from '../dist/database/index.js'
import { ensureLockIndexes } from '../dist/lock/index.js'
import { mixed, mixedDocuments } from './mixed.mjs'
import { monotonicMs } from './probes.mjs'
import { startReplica } from './replica.mjs'
import { median, rounded, slope } from './statistics.mjs'

/** Documents inserted at once, and how many are on their way at most. */
const BATCH = 1_000
const ON_THEIR_WAY = 4_000
const IDLE_MS = 6_000
const SAMPLE_MS = 500
/** Longer than a lease: what was lost with a reply is claimed again. */
const STUCK_MS = 45_000
/** The heap's slope is judged of runs so long, over their last half. */
const JUDGED_MINUTES = 10
const GC_EVERY_SHARE = 1 / 60

/**
 * Resident memory of one replica as users run it, idle and under all the load that it takes; then, of another one, the
 * heap after garbage collections under the same load, and its growth over the last half of the run.
 */
export async function run(server, { quick, minutes = quick ? 0.4 : JUDGED_MINUTES, progress }) {
  const resident = await withLoad(server, [], async (replica, loaded) => {
    progress('resident memory, idle')
    await sleep(IDLE_MS)
    const idle = await samples(replica, 2_000)
    progress('resident memory, under load')
    const rss = await loaded(() => samples(replica, quick ? 10_000 : Math.min(60_000, minutes * 60_000)))
    return { idle, rss }
  })
  const heap = await withLoad(server, ['--expose-gc'], async (replica, loaded) => {
    progress(`the heap under load, for ${rounded(minutes * 60)} s`)
    return await loaded(() => heapSamples(replica, minutes * 60_000))
  })
  const lastHalf = heap.found.filter(([minute]) => minute >= minutes / 2)
  const grows = rounded(slope(lastHalf), 3)
  return {
    rssIdleMb: rounded(median(resident.idle), 1),
    rssLoadedMb: rounded(Math.max(...resident.rss.found), 1),
    rssLoadedMbMedian: rounded(median(resident.rss.found), 1),
    heapSlopeMbPerMinute: minutes >= JUDGED_MINUTES ? grows : null,
    /** Of a short run: the heap still settles, so it isn't judged. */
    ...(minutes < JUDGED_MINUTES ? { heapSlopeMbPerMinuteNotJudged: grows } : {}),
    heapMb: { first: rounded(heap.found[0][1], 1), last: rounded(heap.found.at(-1)[1], 1) },
    minutes,
    loadPerSecond: Math.round(resident.rss.perSecond),
    wrong: resident.rss.left + heap.left,
  }
}

/** A replica alone on a database; `loaded` runs something while documents come as fast as they go. */
async function withLoad(server, nodeOptions, measure) {
  const db = server.database()
  const collection = db.collection(mixed.model.collection)
  await ensureLockIndexes(collection)
  const replica = await startReplica({
    uri: server.uri,
    database: db.databaseName,
    lifecycles: 'mixed.mjs',
    nodeOptions,
    logLevel: 'silent', // one document of twenty fails once
  })
  let done = 0
  replica.on((message) => {
    if (message.done !== undefined) done = message.done
  })
  const client = await protocolClient(server.uri, {}).connect()
  const owner = mixed.handle({ Creating: async (_doc, step) => step.moveTo('Gone') }).attach(client.db(db.databaseName))
  const loaded = async (work) => {
    let inserted = 0
    let over = false
    const startedMs = monotonicMs()
    const load = (async () => {
      while (!over) {
        if (inserted - done > ON_THEIR_WAY - BATCH) await sleep(5)
        else {
          await owner.insertMany(mixedDocuments(BATCH))
          inserted += BATCH
        }
      }
    })()
    const found = await work().finally(() => {
      over = true
    })
    await load
    const perSecond = done / ((monotonicMs() - startedMs) / 1_000)
    return { found, perSecond, left: await leftOver(() => inserted - done) }
  }
  try {
    return await measure(replica, loaded)
  } finally {
    await client.close()
    await replica.end()
    await db.dropDatabase()
  }
}

/** Waits until all is done, as long as it gets on: a slow machine loses nothing. */
async function leftOver(left) {
  let least = left()
  let atMs = monotonicMs()
  while (least > 0 && monotonicMs() - atMs < STUCK_MS) {
    await sleep(50)
    if (left() >= least) continue
    least = left()
    atMs = monotonicMs()
  }
  return least
}

async function samples(replica, ms) {
  const found = []
  const endMs = monotonicMs() + ms
  while (monotonicMs() < endMs) {
    found.push(await replica.rssMb())
    await sleep(SAMPLE_MS)
  }
  return found
}

/** @returns pairs of minutes since the beginning and the heap in use after a collection, in MB */
async function heapSamples(replica, ms) {
  const found = []
  const startedMs = monotonicMs()
  replica.on(({ heapMb }) => {
    if (heapMb !== undefined) found.push([(monotonicMs() - startedMs) / 60_000, heapMb])
  })
  while (monotonicMs() - startedMs < ms) {
    await sleep(ms * GC_EVERY_SHARE)
    replica.tell({ heap: true })
  }
  await sleep(500)
  if (found.length < 4) throw new Error('a replica under load did not tell its heap in time')
  return found
}
