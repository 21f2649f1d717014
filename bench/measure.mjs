import { countWrong, fill, newDocuments } from './workload.mjs'

/**
 * The documents of the hand-written floor need more than a phase: it has none of the engine's care for missing fields.
 */
const FLOOR_FIELDS = { lockedAt: new Date(0), updatedAt: new Date(0), fence: 0 }
const WARM_UP_SHARE = 0.25

/**
 * A contestant for `alternating`: fills a new database, lets the process work on it until nothing is due, checks each
 * document in the data, and gives what was done in a second.
 * @param {{ kind: 'floor' | 'engine', lifecycle?: string, steps: number, withData?: boolean }} job
 * @param tally `wrong` counts documents that are not what they should be; `last` is what the process said of its last
 * run
 */
export function measured(server, process, job, count, tally) {
  return async (round) => {
    const documents = newDocuments(
      round === 0 ? Math.ceil(count * WARM_UP_SHARE) : count,
      job.kind === 'floor' ? FLOOR_FIELDS : {},
    )
    const db = server.database()
    await fill(db, documents)
    const said = await process.run({ ...job, database: db.databaseName })
    tally.wrong += await countWrong(db, { count: documents.length, ...job })
    tally.last[job.lifecycle ?? job.kind] = { cpuSeconds: said.cpuSeconds, seconds: said.seconds, rssMb: said.rssMb }
    await db.dropDatabase()
    return (documents.length * job.steps) / said.seconds
  }
}

export const newTally = () => ({ wrong: 0, last: {} })

/**
 * How much is done: what the caller asked for, else the benchmark's own, of which `quick` takes a third and three
 * rounds at most.
 */
export const sized = ({ quick, documents, rounds }, standard) => ({
  documents: documents ?? (quick ? Math.ceil(standard.documents / 3) : standard.documents),
  rounds: rounds ?? (quick ? Math.min(standard.rounds, 3) : standard.rounds),
})
