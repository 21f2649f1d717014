/**
 * A program, forked by worker.mjs: one peer with one setting. It stays for all rounds, so that what is measured is warm;
 * each round has a namespace, a connection and a worker of its own.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { newLedger } from './ledger.mjs'

const PENDING_POLL_MS = 3
/** All jobs have run: their database says so within this, or the round counts as late. */
const PENDING_LIMIT_MS = 10_000
/** A worker or a connection that doesn't end is left to itself: the process goes on without it. */
const END_WITHIN_MS = 20_000

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
    let late = (await Promise.race([ledger.completed, limit.catch(() => undefined)])) === 'late'
    outOfTime.abort()
    const pendingUntilMs = nowMs() + PENDING_LIMIT_MS
    while (!late && (await session.pending()) > 0) {
      await sleep(PENDING_POLL_MS)
      late = nowMs() > pendingUntilMs
    }
    const endedMs = nowMs()
    const rssMb = Math.round(process.memoryUsage.rss() / 2 ** 20)
    return { startedMs, endedMs, late, rssMb, latencies: ledger.latencies, ...ledger.counts() }
  },
  /** Ends the worker, also one with running jobs, and the connections. What it says to that is no failure. */
  async stop() {
    const ending = session
    session = undefined
    await ended(stopWorker)
    stopWorker = undefined
    await ended(() => ending.close())
  },
  rss: async () => process.memoryUsage.rss() / 2 ** 20,
}

async function ended(end) {
  const over = new AbortController()
  const limit = sleep(END_WITHIN_MS, undefined, { signal: over.signal }).then(
    () => mention(new Error(`not over after ${END_WITHIN_MS / 1_000} s`)),
    () => undefined,
  )
  await Promise.race([Promise.resolve(end?.()).catch(mention), limit])
  over.abort()
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
