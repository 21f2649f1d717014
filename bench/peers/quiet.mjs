import { setTimeout as sleep } from 'node:timers/promises'
import { percentile, rounded } from '../statistics.mjs'
import { dropped, newSpace } from './backlog.mjs'

const SETTLE_MS = 1_500
/** Between two jobs, more or less: they come at odd times, so that no poll keeps step with them. */
const GAP_MS = 300
/** The slowest poll is Agenda's, 5 s by default. */
const PATIENCE_MS = 8_000

/**
 * Workers that have nothing to do: what each asks of its database, its memory, and how soon it begins a job that comes
 * alone. All are up at the same time, one server of each kind; those on the same server are counted one after the other.
 * @param entries `{ peer, worker }`: processes that have done nothing yet
 * @returns for each `{ worker, idleCommandsPerSecond, rssIdleMb, pickupP50Ms, pickupP95Ms, pickups }`
 */
export async function quiet(entries, { addresses, commands }, { idleSeconds, pickupSeconds }) {
  const counted = await idle(entries, { addresses, commands }, idleSeconds)
  const latencies = await pickUp(entries, addresses, pickupSeconds)
  return entries.map(({ worker }, i) => ({
    worker,
    ...counted[i],
    pickupP50Ms: latencies[i].length > 0 ? rounded(percentile(latencies[i], 0.5), 1) : null,
    pickupP95Ms: latencies[i].length > 0 ? rounded(percentile(latencies[i], 0.95), 1) : null,
    pickups: latencies[i].length,
  }))
}

async function idle(entries, { addresses, commands }, seconds) {
  const windows = []
  for (const [i, { worker }] of entries.entries()) {
    const clash = (other) => sharesCounter(entries[other].worker, worker)
    const window = windows.find((others) => !others.some(clash))
    if (window) window.push(i)
    else windows.push([i])
  }
  const figures = []
  for (const window of windows) {
    const spaces = await Promise.all(window.map((i) => opened(entries[i], addresses, 1)))
    await sleep(SETTLE_MS)
    const count = () => Promise.all(window.map((i) => commands[entries[i].worker.name]()))
    const before = await count()
    const fromMs = performance.now()
    await sleep(seconds * 1_000)
    const after = await count()
    const took = (performance.now() - fromMs) / 1_000
    for (const [at, i] of window.entries()) {
      figures[i] = {
        idleCommandsPerSecond: rounded((after[at] - before[at]) / took, 2),
        rssIdleMb: Math.round(await entries[i].worker.ask('rss')),
      }
    }
    for (const space of spaces) await space.close()
  }
  return figures
}

/** Agenda and Phaselock share a server, two settings of one peer its database. */
const sharesCounter = (one, other) =>
  one.name === other.name || [one, other].every(({ name }) => name === 'agenda' || name === 'phaselock')

async function pickUp(entries, addresses, pickupSeconds) {
  const spaces = await Promise.all(
    entries.map(async (entry) => {
      const gapMs = entry.peer.SETTINGS[entry.worker.setting].gapMs ?? GAP_MS
      const jobs = Math.ceil((pickupSeconds * 1_000) / gapMs)
      return { gapMs, jobs, ...(await opened(entry, addresses, jobs)) }
    }),
  )
  await sleep(SETTLE_MS)
  const said = await Promise.all(
    spaces.map(async ({ producer, gapMs, jobs, finish }) => {
      for (let id = 0; id < jobs; id += 1) {
        await sleep(gapMs * (0.95 + Math.random() * 0.1))
        await producer.insertOne({ id, sentMs: Number(process.hrtime.bigint()) / 1e6 })
      }
      return await finish()
    }),
  )
  for (const space of spaces) await space.close()
  return said.map(({ latencies }) => latencies)
}

async function opened({ peer, worker }, addresses, jobs) {
  const space = newSpace()
  const producer = await peer.open(addresses, space, worker.setting, { produces: true })
  await worker.ask('open', { servers: addresses, space, kind: 'noop', jobs })
  await worker.ask('start')
  const startedMs = performance.now()
  return {
    producer,
    finish: () => worker.ask('finish', { limitMs: performance.now() - startedMs + PATIENCE_MS }),
    async close() {
      await worker.ask('stop')
      await dropped(producer)
      await producer.close()
    },
  }
}
