import { setTimeout as sleep } from 'node:timers/promises'

const DROP_TRIES = 10
const DROP_PAUSE_MS = 300
const WARM_UP_SHARE = 0.2
const LEAST_JOBS = 10
let spaces = 0
/** A new namespace: a database, a schema or a prefix of keys. */
export const newSpace = () => {
  spaces += 1
  return `peers_${process.pid}_${spaces}`
}

/**
 * A contestant for `alternating`: a backlog is inserted, then the worker starts, and the time runs from there until each
 * job has run and the database knows it.
 * @param kind `noop` gives jobs in a second, `steps` recorded steps
 * @param seconds how long a round should take; the peer's pace makes a number of jobs of it
 * @param limitSeconds what was done by then counts, when it takes longer
 * @param tally gets what was missing and repeated, and the memory
 */
export function drained(peer, worker, servers, { kind, seconds, limitSeconds, tally }) {
  return async (round) => {
    const jobs = jobsFor(peer, worker.setting, kind, round === 0 ? seconds * WARM_UP_SHARE : seconds)
    return await inSpace(peer, worker, servers, { kind, jobs }, async (producer) => {
      await producer.insert(numbered(jobs))
      await worker.ask('start')
      const said = await worker.ask('finish', { limitMs: 1_000 * (round === 0 ? seconds : limitSeconds) })
      return figure(said, said.startedMs, tally, round)
    })
  }
}

/** The same with the worker running first: the time runs from the first insert. */
export function streamed(peer, worker, servers, { seconds, limitSeconds, tally }) {
  return async (round) => {
    const jobs = jobsFor(peer, worker.setting, 'noop', round === 0 ? seconds * WARM_UP_SHARE : seconds)
    return await inSpace(peer, worker, servers, { kind: 'noop', jobs }, async (producer) => {
      await worker.ask('start')
      const fromMs = Number(process.hrtime.bigint()) / 1e6
      const inserted = producer.insert(numbered(jobs))
      const [said] = await Promise.all([
        worker.ask('finish', { limitMs: 1_000 * (round === 0 ? seconds : limitSeconds) }),
        inserted,
      ])
      return figure(said, fromMs, tally, round)
    })
  }
}

const jobsFor = (peer, setting, kind, seconds) =>
  Math.max(LEAST_JOBS, Math.round(peer.SETTINGS[setting].pace[kind] * seconds))

const numbered = (jobs) => Array.from({ length: jobs }, (_, id) => ({ id }))

/** Runs `body` with a producer here and the worker's process, both open on a namespace that is gone afterwards. */
async function inSpace(peer, worker, servers, { kind, jobs }, body) {
  const space = newSpace()
  const producer = await peer.open(servers, space, worker.setting, { produces: true })
  try {
    await worker.ask('open', { servers, space, kind, jobs })
    try {
      return await body(producer)
    } finally {
      await worker.ask('stop')
    }
  } finally {
    await dropped(producer)
    await producer.close()
  }
}

/** A worker that was stopped in the middle of its work may still hold something for a moment. */
export async function dropped(producer) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await producer.drop()
    } catch (error) {
      if (attempt === DROP_TRIES) throw error
      await sleep(DROP_PAUSE_MS)
    }
  }
}

function figure(said, fromMs, tally, round) {
  if (round > 0) {
    tally.rssMb = Math.max(tally.rssMb, said.rssMb)
    tally.repeated += said.repeated
    if (said.late) tally.late += 1
    else tally.missing += said.missing
  }
  return said.ran / ((said.endedMs - fromMs) / 1_000)
}

/** `missing` counts jobs that never ran although the peer had the time; `late` the rounds that ran out of it. */
export const newTally = () => ({ missing: 0, repeated: 0, late: 0, rssMb: 0 })
