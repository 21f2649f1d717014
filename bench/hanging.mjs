import { setTimeout as sleep } from 'node:timers/promises'
import { protocolClient } from '../dist/database/index.js'
import { lifecycleOf, Replica } from '../dist/index.js'
import { until } from './probe-crew.mjs'
import { percentile, rounded } from './statistics.mjs'

const HANGING = 1_000
const GOOD = 100
const EVERY_MS = 20

const job = lifecycleOf().define({
  name: 'job',
  collection: 'Job',
  phases: { Working: { next: ['Done'] }, Done: { rest: true } },
  callbacks: ['onMoved'],
  callbackTimeout: '10m',
})

/**
 * How long after a document's move its callback begins, while none hangs and while those of 1,000 other documents of the same lifecycle hang: one
 * replica, default settings, a document every 20 ms.
 */
export async function besideHanging(server, progress) {
  const client = await protocolClient(server.uri).connect()
  const db = client.db(server.database().databaseName)
  const begunMs = new Map()
  const end = Promise.withResolvers()
  let hung = 0
  const onMoved = async ({ id, at }) => {
    if (id.startsWith('hangs')) {
      hung += 1
      await end.promise
    } else begunMs.set(id, Date.now() - at.getTime())
  }
  const jobs = job.handle({ Working: async (_doc, step) => step.moveTo('Done') }, { onMoved })
  const replica = new Replica({ db, lifecycles: [jobs], name: 'bench' })
  const good = async (name) => {
    for (let i = 0; i < GOOD; i += 1) {
      await jobs.insert({ _id: `${name}${i}` })
      await sleep(EVERY_MS)
    }
    const names = Array.from({ length: GOOD }, (_, i) => `${name}${i}`)
    await until(() => names.every((one) => begunMs.has(one)), 'callbacks of documents whose own never hang')
    const late = names.map((one) => begunMs.get(one))
    return { p50: rounded(percentile(late, 0.5), 1), most: rounded(Math.max(...late), 1) }
  }
  try {
    await replica.start()
    progress('callbacks of which none hangs')
    const alone = await good('alone')
    progress(`callbacks beside ${HANGING.toLocaleString('en-US')} that hang`)
    await jobs.insertMany(Array.from({ length: HANGING }, (_, i) => ({ _id: `hangs${i}` })))
    // From the first second on: the good ones come while the others begin to hang.
    const beside = await good('beside')
    return {
      calledMs: alone.p50,
      calledBesideHangingMs: beside.p50,
      calledBesideHangingMostMs: beside.most,
      hung,
    }
  } finally {
    end.resolve()
    await replica.stop()
    await client.close()
  }
}
