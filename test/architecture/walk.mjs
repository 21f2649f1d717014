/**
 * The files of a plain claim, by V8's coverage of one step of a built replica: `node walk.mjs <connection string>` prints as JSON which of them run
 * until the handler begins, and until its outcome is stored. A file counts as soon as one of its functions is called.
 */
import { Session } from 'node:inspector/promises'
import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { connectDatabase } from '../../dist/database/public.js'
import { lifecycleOf, Replica } from '../../dist/index.js'

const dist = fileURLToPath(new URL('../../dist/', import.meta.url))
const session = new Session()
session.connect()

/** The files with a function that was called since the last time. The range from the file's beginning is its top level, which runs when it is loaded. */
async function touched() {
  const { result } = await session.post('Profiler.takePreciseCoverage')
  const ours = result.filter(({ url }) => url.startsWith('file:') && fileURLToPath(url).startsWith(dist))
  return ours
    .filter(({ functions }) => functions.some(({ ranges: [{ count, startOffset }] }) => count > 0 && startOffset > 0))
    .map(({ url }) => relative(dist, fileURLToPath(url)))
}

const order = lifecycleOf().define({
  name: 'order',
  collection: 'Order',
  phases: { Paying: { next: ['Sent'] }, Sent: { rest: true } },
})
const walk = { beforeHandler: [], untilStored: [] }
let isMeasured = false
const stored = Promise.withResolvers()
const orders = order.handle({
  async Paying(_document, step) {
    if (isMeasured) walk.beforeHandler = await touched()
    return step.moveTo('Sent')
  },
})
const stepEnded = () => isMeasured && stored.resolve()

const connection = await connectDatabase({ uri: process.argv[2] })
const replica = new Replica({ db: connection.db, lifecycles: [orders], observer: { stepEnded } })
try {
  // What runs once only, such as the start and the first claim of a phase, isn't part of it.
  for (const _id of ['a', 'b', 'c']) {
    await orders.insert({ _id })
    await replica.runOnce()
  }
  await orders.insert({ _id: 'measured' })
  await session.post('Profiler.enable')
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
  await touched()
  isMeasured = true
  await replica.tick()
  await stored.promise
  walk.untilStored = [...new Set([...walk.beforeHandler, ...(await touched())])]
  process.stdout.write(JSON.stringify(walk))
} finally {
  await replica.stop()
  await connection.close()
}
