import { setTimeout as sleep } from 'node:timers/promises'
import { protocolClient } from '../dist/database/index.js'
import { lifecycleOf, Replica, silentLogger } from '../dist/index.js'
import * as operations from '../dist/operations/index.js'
import { replicaMetrics } from '../dist/telemetry/index.js'
import { child } from './child.mjs'
import { fillForLooks, KINDS, lifecycles, systemIn, WHY_OF } from './looking-fill.mjs'
import { percentile, rounded } from './statistics.mjs'

/** The readers beside a replica, each once a second, as consoles and scrapers are. */
const READERS = 20
const CHAINS = 500

/**
 * What it costs to look at a grown system: the server's CPU for a status, a scrape, a census of all lifecycles, why a document doesn't go on and a
 * page of documents by cause; and the steps of a replica beside 20 readers that look once a second, and without them.
 */
export async function run(server, { quick, documents = quick ? 30_000 : 300_000, rounds = quick ? 2 : 5, progress }) {
  const client = await protocolClient(server.uri).connect()
  const db = client.db(server.database().databaseName)
  const system = systemIn(db)
  // Registers the lifecycles and makes the indexes. It never ticks: nothing of this is claimed.
  const replica = new Replica({ db, lifecycles, logger: silentLogger, doorbell: 'off' })
  try {
    await replica.prepare()
    progress(`${documents} documents`)
    await fillForLooks(db, documents)
    progress('censuses')
    const cpu = (act, times) => cpuMsOf(server, act, times)
    // The first one finds out what is large; later ones, which count, know it.
    await replica.duties.runAll()
    const censusCpuMs = await cpu(() => operations.censusFor(system, { fresh: true }), quick ? 3 : 10)
    const counted = await operations.censusFor(system)
    const { registry } = replicaMetrics({ db, lifecycles, processMetrics: false })
    const statusCpuMs = await cpu(() => operations.systemStatus(system), 20)
    const scrapeCpuMs = await cpu(() => registry.metrics(), 20)
    const [cause] = counted.census.get('order')?.errors ?? []
    const { whyDocument } = operations
    const why = whyDocument && (await cpu(() => whyDocument(system, { id: WHY_OF, lifecycle: 'order' }), 20))
    const page = await pagesByCause(system, cause?.cause, quick ? 10 : 50)
    progress(`steps beside ${READERS} readers`)
    const beside = await stepsBeside(client, server, db.databaseName, { rounds, ms: quick ? 4_000 : 10_000 })
    return {
      documents,
      ...{ censusCpuMs: rounded(censusCpuMs), statusCpuMs: rounded(statusCpuMs), scrapeCpuMs: rounded(scrapeCpuMs) },
      ...(why !== undefined && { whyCpuMs: rounded(why) }),
      ...(page && { pageByCauseP95Ms: rounded(page) }),
      ...beside,
      wrong: counted.census.size === KINDS.length ? 0 : KINDS.length - counted.census.size,
    }
  } finally {
    await replica.stop()
    await client.close()
  }
}

/** The server's CPU for one call, after one that isn't counted. */
async function cpuMsOf(server, act, times) {
  await act()
  const before = await server.cpuSeconds()
  for (let i = 0; i < times; i += 1) await act()
  return ((await server.cpuSeconds()) - before) * (1_000 / times)
}

/** A version without lists by cause has no such figure. */
async function pagesByCause(system, cause, times) {
  const { listDocuments } = operations
  if (cause === undefined || !(await takesCause(system, cause))) return undefined
  const took = []
  for (let i = 0; i < times; i += 1) {
    const at = performance.now()
    await listDocuments(system, { lifecycle: 'order', cause, limit: 50 })
    took.push(performance.now() - at)
  }
  return percentile(took, 0.95)
}

const takesCause = (system, cause) =>
  operations.listDocuments(system, { lifecycle: 'order', cause, limit: 1 }).then(
    () => true,
    () => false,
  )

/** A replica in another database of the same server, whose documents take step after step, with readers beside it in every other round. */
async function stepsBeside(client, server, looked, { rounds, ms }) {
  const db = client.db(server.database().databaseName)
  let steps = 0
  const step = (to) => async (_doc, held) => {
    steps += 1
    return held.moveTo(to)
  }
  const chain = lifecycleOf()
    .define({
      name: 'chain',
      collection: 'Chain',
      phases: { A: { next: ['B'] }, B: { next: ['A', 'Z'] }, Z: { rest: true } },
    })
    .handle({ A: step('B'), B: step('A') })
  const replica = new Replica({ db, lifecycles: [chain], logger: silentLogger })
  await replica.start()
  await db.collection('Chain').insertMany(Array.from({ length: CHAINS }, (_, i) => ({ _id: i, phase: 'A' })))
  const rates = { alone: [], beside: [] }
  const readers = child('looking-readers.mjs', 'the process of the readers')
  let looks = 0
  try {
    await readers.ask({ uri: server.uri, database: looked, readers: READERS })
    await sleep(ms / 2)
    for (let round = 0; round < rounds; round += 1)
      for (const how of ['alone', 'beside']) {
        if (how === 'beside') await readers.ask('begin')
        const from = performance.now()
        const before = steps
        await sleep(ms)
        rates[how].push(((steps - before) * 1_000) / (performance.now() - from))
        if (how === 'beside') looks += await readers.ask('end')
      }
  } finally {
    await readers.close()
    await replica.stop()
  }
  const sum = (all) => all.reduce((total, one) => total + one, 0)
  return {
    stepsPerSecondAlone: rounded(sum(rates.alone) / rounds),
    stepsPerSecondBeside: rounded(sum(rates.beside) / rounds),
    besideReaders: rounded(sum(rates.beside) / sum(rates.alone), 3),
    looksPerSecond: rounded((looks * 1_000) / (ms * rounds)),
  }
}
