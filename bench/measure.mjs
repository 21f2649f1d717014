import { contestant } from './contestant.mjs'
import { LIFECYCLES } from './lifecycles.mjs'
import { monotonicMs } from './probes.mjs'
import { alternating } from './rounds.mjs'
import { rounded } from './statistics.mjs'
import { countWrong, fill, insertAll, newDocuments, prepareCollection } from './workload.mjs'

/**
 * The documents of the hand-written floor need more than a phase: it has none of the engine's care for missing fields.
 */
export const FLOOR_FIELDS = { lockedAt: new Date(0), updatedAt: new Date(0), fence: 0 }
const WARM_UP_SHARE = 0.25
/** On a slow machine a quick run takes fewer documents: as many as the slowest contestant does in so long, and at least some. */
const QUICK_ROUND_SECONDS = 1.5
const LEAST_DOCUMENTS = 500

/**
 * The contestants in alternating rounds, each in a process of its own.
 * @param {Record<string, { kind: 'floor' | 'engine', lifecycle?: string, steps: number, withData?: boolean, flows?: true }>} jobs
 *   by name; `flows`: from the insert to done, else the work on what is there
 * @returns `figures`: name -> steps a second, one figure a round; `documents`: how many in each; `wrong`: those that are not
 *   what they should be; `last`: what each process said of its last run
 */
export async function compared(server, jobs, { pace, rounds, progress }) {
  const tally = { wrong: 0, last: {} }
  const processes = []
  try {
    const contestants = {}
    for (const [name, job] of Object.entries(jobs)) {
      const process = await contestant(server.uri)
      processes.push(process)
      contestants[name] = pace.kept(job.steps, (count) => measured(server, process, { name, ...job }, count, tally))
    }
    const figures = await alternating(contestants, rounds, progress)
    return { figures, documents: pace.documents, ...tally }
  } finally {
    for (const process of processes) await process.close()
  }
}

/**
 * A contestant for `alternating`: a new database, the process works on it, each document is checked in the data; gives
 * what was done in a second.
 */
export function measured(server, process, job, count, tally) {
  return async (round) => {
    const documents = newDocuments(
      round === 0 ? Math.ceil(count * WARM_UP_SHARE) : count,
      job.kind === 'floor' ? FLOOR_FIELDS : {},
    )
    const db = server.database()
    if (!job.flows) await fill(db, documents)
    const serverBefore = await server.cpuSeconds()
    const said = await (job.flows ? flowed : worked)(process, { ...job, database: db.databaseName }, db, documents)
    const serverCpuSeconds = (await server.cpuSeconds()) - serverBefore
    tally.wrong += await countWrong(db, { count: documents.length, ...job })
    const { cpuSeconds, seconds, rssMb } = said
    const steps = documents.length * job.steps
    tally.last[job.name ?? job.lifecycle ?? job.kind] = {
      cpuSeconds,
      seconds,
      rssMb,
      clientUsPerStep: rounded((cpuSeconds / steps) * 1e6, 1),
      serverUsPerStep: rounded((serverCpuSeconds / steps) * 1e6, 1),
    }
    await db.dropDatabase()
    return steps / seconds
  }
}

/** The seconds of the work alone: all documents are there when it begins. */
const worked = (process, job) => process.run(job)

/**
 * The seconds from the first insert to the last document done, by the machine's monotonic clock. This process is the owner: it
 * inserts beside the contestant, the engine's documents by the owner's API, the floor's by the driver.
 */
async function flowed(process, job, db, documents) {
  await prepareCollection(db)
  const { done } = await process.begin({ ...job, until: documents.length })
  const owner = job.kind === 'engine' ? LIFECYCLES[job.lifecycle].attach(db) : undefined
  const startedMs = monotonicMs()
  await insertAll(db, documents, { owner })
  const said = await done // once its replica has stopped
  return { ...said, seconds: (said.endedMs - startedMs) / 1_000 }
}

/**
 * How much is done: what the caller asked for, else the benchmark's own, of which `quick` takes a third and three
 * rounds at most.
 */
export const sized = ({ quick, documents, rounds }, standard) => ({
  pace: new Pace(documents ?? (quick ? Math.ceil(standard.documents / 3) : standard.documents), quick && !documents),
  rounds: rounds ?? (quick ? Math.min(standard.rounds, 3) : standard.rounds),
})

/** How many documents a round takes: the same for all contestants of a run. */
class Pace {
  #most
  #adapts
  #slowest = Number.POSITIVE_INFINITY

  constructor(most, adapts) {
    this.#most = most
    this.#adapts = adapts
  }

  get documents() {
    if (!this.#adapts) return this.#most
    return Math.max(LEAST_DOCUMENTS, Math.min(this.#most, Math.round(this.#slowest * QUICK_ROUND_SECONDS)))
  }

  /** A contestant that learns from its warm-up how many documents it should be given. */
  kept(steps, contestant) {
    return async (round) => {
      const figure = await contestant(round === 0 ? this.#most : this.documents)(round)
      if (round === 0) this.#slowest = Math.min(this.#slowest, figure / steps)
      return figure
    }
  }
}
