/**
 * A program, forked by contestant.mjs: runs the floor or one replica of the engine on a database, and says how long it
 * took.
 */
import { connectDatabase, renewalClient } from '../dist/database/index.js'
import { Replica } from '../dist/index.js'
import { runFloor } from './hand-written.mjs'
import { LIFECYCLES } from './lifecycles.mjs'
import { monotonicMs } from './probes.mjs'

const TELL_EVERY_MS = 10

let connection
let go
let renewals

/** A replica, what it counts, and how it works: on what is there, or on what comes until so many documents are done. */
async function engineJob(db, { lifecycle, until }) {
  const counts = { claimed: 0, lost: 0, done: 0 }
  let allDone
  const reached = new Promise((resolve) => {
    allDone = resolve
  })
  const replica = new Replica({
    db,
    renewalDb: renewals.db(db.databaseName),
    lifecycles: [LIFECYCLES[lifecycle]],
    name: 'bench',
    observer: {
      claimed({ claimed, lost }) {
        counts.claimed += claimed
        counts.lost += lost
      },
      stepEnded({ outcome }) {
        if (outcome !== 'moveTo') return
        counts.done += 1
        if (counts.done === until) allDone()
      },
    },
  })
  await replica.prepare()
  return {
    work: () => replica.runOnce(),
    async flow() {
      await replica.start()
      return reached
    },
    start: () => replica.start(),
    counts,
    async end() {
      await replica.stop()
      return counts
    },
  }
}

async function floorJob(db, options) {
  const work = () => runFloor(db, options)
  return { work, flow: async () => work(), end: () => ({}) }
}

const nextGo = () =>
  new Promise((resolve) => {
    go = resolve
  })

/** A replica that works on whatever comes, and tells how much is done, until it is told to go. */
async function stay(job) {
  const { start, end, counts } = await engineJob(connection.client.db(job.database), job)
  let told = 0
  await start()
  const timer = setInterval(() => {
    if (counts.done === told) return
    told = counts.done
    process.send({ ...counts })
  }, TELL_EVERY_MS)
  process.send({ ready: true })
  await nextGo()
  clearInterval(timer)
  process.send({ ...(await end()), ended: true })
}

async function run(job) {
  if (job.stays) return stay(job)
  const db = connection.client.db(job.database)
  const { work, flow, end } = await (job.kind === 'engine' ? engineJob(db, job) : floorJob(db, job))
  const told = job.flows ? Promise.resolve() : nextGo()
  if (!job.flows) process.send({ ready: true })
  await told
  const cpuBefore = process.cpuUsage()
  const startedMs = performance.now()
  const done = job.flows ? flow() : work()
  if (job.flows) process.send({ ready: true })
  await done
  const usage = used(cpuBefore, startedMs)
  process.send({ ...usage, ...(await end()) })
}

function used(cpuBefore, startedMs) {
  const seconds = (performance.now() - startedMs) / 1_000
  const { user, system } = process.cpuUsage(cpuBefore)
  return {
    endedMs: monotonicMs(),
    seconds,
    cpuSeconds: (user + system) / 1e6,
    rssMb: Math.round(process.memoryUsage.rss() / 2 ** 20),
  }
}

let working = Promise.resolve()

process.on('message', ({ uri, job, go: goes }) => {
  if (goes) return go()
  // One after the other: a replica is still stopping when its next job comes.
  working = working.then(async () => {
    if (job) return run(job)
    connection = await connectDatabase({ uri, env: {} })
    renewals = await renewalClient(connection)
    process.send({ ready: true })
  })
})
process.on('disconnect', async () => {
  await working
  await connection?.close()
  process.exit(0)
})
