/**
 * A program, forked by contestant.mjs: runs the floor or one replica of the engine on a database, and says how long it
 * took.
 */
import { connectDatabase, renewalClient } from '../dist/database/index.js'
import { Replica } from '../dist/index.js'
import { runFloor } from './hand-written.mjs'
import { LIFECYCLES } from './lifecycles.mjs'

let connection
let renewals

async function engineJob(db, { lifecycle }) {
  const replica = new Replica({
    db,
    renewalDb: renewals.db(db.databaseName),
    lifecycles: [LIFECYCLES[lifecycle]],
    name: 'bench',
  })
  await replica.prepare()
  return { work: () => replica.runOnce(), end: () => replica.stop() }
}

async function floorJob(db, options) {
  return { work: () => runFloor(db, options), end: () => undefined }
}

async function run(job) {
  const db = connection.client.db(job.database)
  const { work, end } = await (job.kind === 'engine' ? engineJob(db, job) : floorJob(db, job))
  const cpuBefore = process.cpuUsage()
  const startedMs = performance.now()
  await work()
  const seconds = (performance.now() - startedMs) / 1_000
  const { user, system } = process.cpuUsage(cpuBefore)
  await end()
  return { seconds, cpuSeconds: (user + system) / 1e6, rssMb: Math.round(process.memoryUsage.rss() / 2 ** 20) }
}

process.on('message', async ({ uri, job }) => {
  if (uri) {
    connection = await connectDatabase({ uri, env: {} })
    renewals = await renewalClient(connection)
  }
  process.send(job ? await run(job) : { ready: true })
})
process.on('disconnect', async () => {
  await connection?.close()
  process.exit(0)
})
