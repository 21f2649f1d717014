import { setTimeout as sleep } from 'node:timers/promises'
import { protocolClient } from '../dist/database/index.js'
import { lifecycleOf, Replica, silentLogger } from '../dist/index.js'
import { until } from './probe-crew.mjs'
import { alternating } from './rounds.mjs'
import { median, rounded } from './statistics.mjs'
import { COLLECTION, fill, insertAll, newDocuments } from './workload.mjs'

const SMALL = 20
const HANDLER_MS = 1
const RANKS = ['urgent', 'high', 'normal', 'low']
/** Far more than a run needs; the plain order has them all before the others' documents. */
const WITHIN_MS = 300_000

/**
 * One tenant has `documents` due when another's few are inserted: how long these take, in turns (`fairBy`), with a higher rank (`priorityBy`),
 * and by age; beside what they take where nothing else is due. And what either order costs: documents a second from a backlog of 50
 * tenants, or of all ranks, beside the order by age.
 */
export async function run(server, { quick, rounds = quick ? 1 : 3, documents = quick ? 5_000 : 100_000, progress }) {
  const client = await protocolClient(server.uri).connect()
  const seen = { wrong: 0 }
  const on = (work) => async () => {
    const db = client.db(server.database().databaseName)
    const figure = await work(db, seen)
    await db.dropDatabase()
    return figure
  }
  const many = Math.ceil(documents / 10)
  const tenants = newDocuments(many).map((one, i) => ({ ...one, tenant: `t${i % 50}` }))
  const ranks = newDocuments(many).map((one, i) => ({ ...one, priority: RANKS[i % 4] }))
  const telling = (line) => progress(line.replace('/s', line.includes('delay') ? ' ms' : '/s'))
  try {
    const figures = await alternating(
      {
        'delay with nothing else due': on((db) => delay(db, { documents: 0 }, seen)),
        'delay in turns': on((db) => delay(db, { documents, settings: { fairBy: 'tenant' } }, seen)),
        'delay with a higher rank': on((db) => delay(db, { documents, settings: { priorityBy: 'priority' } }, seen)),
        'delay by age': on((db) => delay(db, { documents: Math.min(documents, 20_000) }, seen)),
        'tenants by age': on((db) => drained(db, tenants, {})),
        'tenants in turns': on((db) => drained(db, tenants, { fairBy: 'tenant' })),
        'ranks by age': on((db) => drained(db, ranks, {})),
        'ranks by rank': on((db) => drained(db, ranks, { priorityBy: 'priority' })),
      },
      rounds,
      telling,
    )
    const of = (name) => Math.round(median(figures[name]))
    const share = (one, other) => rounded(median(figures[one].map((figure, i) => figure / figures[other][i])), 3)
    return {
      aloneMs: of('delay with nothing else due'),
      inTurnsMs: of('delay in turns'),
      byRankMs: of('delay with a higher rank'),
      byAgeMs: of('delay by age'),
      byAgeBehind: Math.min(documents, 20_000),
      behind: documents,
      small: SMALL,
      turnsShare: share('tenants in turns', 'tenants by age'),
      ranksShare: share('ranks by rank', 'ranks by age'),
      documents: many,
      rounds,
      wrong: seen.wrong,
    }
  } finally {
    await client.close()
  }
}

/** Milliseconds from the insert of a tenant's few documents, while another's many are worked on, until all of the few are done. */
async function delay(db, { documents, settings }, seen) {
  let [begun, done] = [0, 0]
  const lifecycle = lifecycleWith(settings, async (doc) => {
    begun += 1
    await sleep(HANDLER_MS)
    if (doc.tenant === 'small') done += 1
  })
  await fill(db, newDocuments(documents, { tenant: 'big', priority: 'low' }))
  const replica = new Replica({ db, lifecycles: [lifecycle], name: 'bench', logger: silentLogger })
  await replica.prepare()
  await replica.start()
  if (documents > 0) await until(() => begun > 500, 'some to begin')
  const startedMs = performance.now()
  await insertAll(db, newDocuments(SMALL, { tenant: 'small', priority: 'high' }), { owner: lifecycle.attach(db) })
  await until(() => done >= SMALL, "the other tenant's documents", WITHIN_MS)
  const ms = performance.now() - startedMs
  await replica.stop()
  if (done > SMALL) seen.wrong += done - SMALL
  return ms
}

/** Documents a second from a backlog, of handlers that do nothing. */
async function drained(db, documents, settings) {
  let done = 0
  const lifecycle = lifecycleWith(settings, async () => {
    done += 1
  })
  await fill(db, documents)
  const replica = new Replica({ db, lifecycles: [lifecycle], name: 'bench', logger: silentLogger })
  await replica.prepare()
  const startedMs = performance.now()
  await replica.start()
  await until(() => done >= documents.length, 'all documents', WITHIN_MS)
  const perSecond = documents.length / ((performance.now() - startedMs) / 1_000)
  await replica.stop()
  return perSecond
}

const lifecycleWith = (settings, work) =>
  lifecycleOf()
    .define({
      name: 'fair',
      collection: COLLECTION,
      phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
      ...settings,
    })
    .handle({
      async Creating(doc, step) {
        await work(doc)
        return step.moveTo('Created')
      },
    })
