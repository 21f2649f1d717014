import { protocolClient } from '../dist/database/index.js'
import { lifecycleOf, Replica, silentLogger } from '../dist/index.js'
import { beginOperation, operationNamed, workOnOperations } from '../dist/operations/index.js'
import { alternating } from './rounds.mjs'
import { median, rounded } from './statistics.mjs'
import { COLLECTION, fill } from './workload.mjs'

const AT_ONCE = 8
const MOST = 100_000

const definition = lifecycleOf().define({
  name: 'operated',
  collection: COLLECTION,
  phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
})
const IN_AN_HOUR = new Date(Date.now() + 3_600_000)

/**
 * Operations over documents that sleep, or are parked, by one process, unbounded by a rate: `wake`, and `redo`, which also keeps what each was. Beside
 * them the same number of single updates with the same write concern, as many at once.
 */
export async function run(server, { quick, rounds = quick ? 2 : 5, documents = quick ? 2_000 : 10_000, progress }) {
  const client = await protocolClient(server.uri).connect()
  const seen = { wrong: 0 }
  const work = (act) => async () => {
    const db = client.db(server.database().databaseName)
    const replica = new Replica({
      db,
      lifecycles: [definition.handle({ Creating: (_doc, step) => step.moveTo('Created') })],
      logger: silentLogger,
    })
    await replica.prepare()
    await replica.stop()
    await fill(db, sleepers(documents))
    const perSecond = await act(db, documents, seen)
    await db.dropDatabase()
    return perSecond
  }
  try {
    const figures = await alternating(
      { wake: work(operated('wake', {})), redo: work(operated('redo', { set: { n: 2 } })), floor: work(byHand) },
      rounds,
      progress,
    )
    const of = (name) => Math.round(median(figures[name]))
    const share = (one) => rounded(median(figures[one].map((figure, i) => figure / figures.floor[i])), 3)
    return {
      wakePerSecond: of('wake'),
      redoPerSecond: of('redo'),
      floorPerSecond: of('floor'),
      wakeShare: share('wake'),
      redoShare: share('redo'),
      documents,
      rounds,
      wrong: seen.wrong,
    }
  } finally {
    await client.close()
  }
}

function* numbers(count) {
  for (let i = 0; i < count; i += 1) yield i
}

const sleepers = (count) =>
  [...numbers(count)].map((i) => ({
    ...{ _id: `d${String(i).padStart(7, '0')}`, phase: 'Creating', n: 1, lockedAt: IN_AN_HOUR, updatedAt: new Date(0) },
    progress: { waitingFor: 'rain', resumeAt: IN_AN_HOUR },
  }))

const operated = (action, options) => async (db, documents, seen) => {
  const system = { db, models: [definition.model], doorbell: 'off' }
  const request = { action, options, selection: { lifecycle: 'operated', all: true }, by: 'bench', atMost: MOST }
  const { _id } = await beginOperation(system, { ...request, rate: MOST, concurrency: AT_ONCE })
  await workOnOperations(system, [_id])
  const { counts, workedMs } = await operationNamed(system, _id)
  seen.wrong += documents - counts.done
  seen.wrong += documents - (await db.collection(COLLECTION).countDocuments({ lockedAt: new Date(0) }))
  return (documents / workedMs) * 1_000
}

/** One update for each, by its `_id`. */
async function byHand(db, documents, seen) {
  const collection = db.collection(COLLECTION)
  const left = numbers(documents)
  const startedMs = performance.now()
  const lane = async () => {
    for (const i of left) {
      const filter = { _id: `d${String(i).padStart(7, '0')}`, lockedBy: null }
      await collection.updateOne(filter, { $set: { lockedAt: new Date(0) } }, { writeConcern: { w: 1, j: true } })
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, lane))
  const seconds = (performance.now() - startedMs) / 1_000
  seen.wrong += documents - (await collection.countDocuments({ lockedAt: new Date(0) }))
  return documents / seconds
}
