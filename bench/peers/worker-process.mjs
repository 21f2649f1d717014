/**
 * A program, forked by worker.mjs: one peer with one setting. It stays for all rounds, so that what is measured is warm;
 * each round has a namespace, a connection and a worker of its own.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { newLedger } from './ledger.mjs'

const PENDING_POLL_MS = 3

const [, , name, setting] = process.argv
const peer = await import(`./${name}.mjs`)
let session
let ledger
let startedMs
let stopWorker

/** Comparable between the processes of one machine. */
const nowMs = () => Number(process.hrtime.bigint()) / 1e6

const commands = {
  /** Connects; a worker doesn't run yet. */
  async open({ servers, space, kind, jobs }) {
    session = await peer.open(servers, space, setting)
    ledger = newLedger(kind, jobs)
    const hang = (job) => {
      process.send({ hang: { id: job.id, atMs: nowMs() } })
      return new Promise(() => undefined)
    }
    ledger.run = kind === 'hang' ? hang : (job) => ledger.visit(job, nowMs())
  },
  async start() {
    startedMs = nowMs()
    const { run } = ledger
    stopWorker = await session.work((job) => run(job))
  },
  /** Waits until all has run and the database knows it, or for `limitMs` since the start. */
  async finish({ limitMs }) {
    const outOfTime = new AbortController()
    const limit = sleep(Math.max(0, startedMs + limitMs - nowMs()), 'late', { signal: outOfTime.signal })
    const late = (await Promise.race([ledger.completed, limit.catch(() => undefined)])) === 'late'
    outOfTime.abort()
    while (!late && (await session.pending()) > 0) await sleep(PENDING_POLL_MS)
    const endedMs = nowMs()
    const rssMb = Math.round(process.memoryUsage.rss() / 2 ** 20)
    return { startedMs, endedMs, late, rssMb, latencies: ledger.latencies, ...ledger.counts() }
  },
  /** Ends the worker, also one with running jobs, and the connections. What it says to that is no failure. */
  async stop() {
    const ending = session
    session = undefined
    await stopWorker?.().catch(mention)
    stopWorker = undefined
    await ending.close().catch(mention)
  },
  rss: async () => process.memoryUsage.rss() / 2 ** 20,
}

const mention = (error) => console.error(`${name} (${setting}), when it was stopped: ${error?.message ?? error}`)

/** A peer that was stopped in the middle of its work may leave something that fails later; while it works it may not. */
for (const event of ['unhandledRejection', 'uncaughtException']) {
  process.on(event, (error) => {
    if (session === undefined) return
    console.error(error)
    process.exit(1)
  })
}

process.on('message', async ({ id, command, given }) => {
  try {
    process.send({ id, answer: await commands[command](given) })
  } catch (error) {
    process.send({ id, error: error.stack })
  }
})
process.on('disconnect', () => process.exit(0))
