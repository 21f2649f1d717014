import { setTimeout as sleep } from 'node:timers/promises'
import { protocolClient } from '../dist/database/index.js'
import { Limits, lifecycleOf, Replica, silentLogger } from '../dist/index.js'
import { until } from './probe-crew.mjs'
import { alternating } from './rounds.mjs'
import { median, rounded } from './statistics.mjs'
import { COLLECTION, fill, newDocuments } from './workload.mjs'

const AMPLE = 100_000
const FEW = 8
const HANDLER_MS = 5

/**
 * Documents of one step by one replica in this process, from a backlog: without a limit, with more slots than it can use, and with few slots and
 * handlers that take a while, by one replica and by two. Beside it what a program written by hand gets: a counter that each lane takes from and
 * gives back to, one command each.
 */
export async function run(server, { quick, rounds = quick ? 2 : 5, documents = quick ? 1_500 : 8_000, progress }) {
  const client = await protocolClient(server.uri).connect()
  const seen = { wrong: 0, most: 0 }
  const few = Math.ceil(documents / 8)
  const work = (request) => async () => {
    const db = client.db(server.database().databaseName)
    const done = await worked(db, { documents, replicas: 1, ms: 0, ...request }, seen)
    await db.dropDatabase()
    return done
  }
  try {
    const figures = await alternating(
      {
        unlimited: work({}),
        ample: work({ slots: AMPLE }),
        few: work({ slots: FEW, ms: HANDLER_MS, documents: few }),
        fewByTwo: work({ slots: FEW, ms: HANDLER_MS, documents: few, replicas: 2 }),
        floor: () => counted(client.db(server.database().databaseName), few),
      },
      rounds,
      progress,
    )
    const of = (name) => Math.round(median(figures[name]))
    const share = (one, other) => rounded(median(figures[one].map((figure, i) => figure / figures[other][i])), 3)
    return {
      unlimitedPerSecond: of('unlimited'),
      amplePerSecond: of('ample'),
      ampleShare: share('ample', 'unlimited'),
      fewPerSecond: of('few'),
      fewByTwoPerSecond: of('fewByTwo'),
      floorPerSecond: of('floor'),
      fewShare: share('few', 'floor'),
      mostAtOnce: seen.most,
      slots: FEW,
      documents,
      rounds,
      wrong: seen.wrong,
    }
  } finally {
    await client.close()
  }
}

async function worked(db, { documents, replicas, slots, ms }, seen) {
  let [now, done] = [0, 0]
  const lifecycle = lifecycleOf()
    .define({
      name: 'limited',
      collection: COLLECTION,
      phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
      ...(slots && { limits: ['few'] }),
    })
    .handle({
      async Creating(_doc, step) {
        now += 1
        if (slots === FEW) seen.most = Math.max(seen.most, now)
        if (slots && now > slots) seen.wrong += 1
        if (ms > 0) await sleep(ms)
        now -= 1
        done += 1
        return step.moveTo('Created')
      },
    })
  if (slots) await new Limits(db).set('few', { slots })
  await fill(db, newDocuments(documents))
  const all = Array.from({ length: replicas }, (_, i) => {
    return new Replica({ db, lifecycles: [lifecycle], name: `bench-${i}`, logger: silentLogger })
  })
  for (const replica of all) await replica.prepare()
  const startedMs = performance.now()
  await Promise.all(all.map((replica) => replica.start()))
  await until(() => done >= documents, 'all documents')
  const seconds = (performance.now() - startedMs) / 1_000
  await Promise.all(all.map((replica) => replica.stop()))
  seen.wrong += documents - (await db.collection(COLLECTION).countDocuments({ phase: 'Created' }))
  return documents / seconds
}

/** A counter by hand, as many lanes as there are slots: one command to take, one to give back, for each document. */
async function counted(db, documents) {
  const limits = db.collection('counted')
  await limits.insertOne({ _id: 'few', used: 0 })
  let next = 0
  const lane = async () => {
    while (next < documents) {
      next += 1
      await limits.findOneAndUpdate({ _id: 'few', used: { $lt: FEW } }, { $inc: { used: 1 } })
      await sleep(HANDLER_MS)
      await limits.updateOne({ _id: 'few' }, { $inc: { used: -1 } })
    }
  }
  const startedMs = performance.now()
  await Promise.all(Array.from({ length: FEW }, lane))
  const seconds = (performance.now() - startedMs) / 1_000
  await db.dropDatabase()
  return documents / seconds
}
