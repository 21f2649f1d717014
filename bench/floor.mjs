import { contestant } from './contestant.mjs'
import { FLOOR_BATCH, FLOOR_LANES } from './hand-written.mjs'
import { measured, newTally, sized } from './measure.mjs'
import { alternating, median } from './rounds.mjs'
import { STEPS } from './workload.mjs'

/** What the server gives to a program written by hand for just this: six recorded steps a document, and one. */
export async function run(server, { progress, ...size }) {
  const { documents, rounds } = sized(size, { documents: 15_000, rounds: 5 })
  const tally = newTally()
  const worker = await contestant(server.uri)
  try {
    const figures = await alternating(
      {
        steps: measured(server, worker, { kind: 'floor', steps: STEPS }, documents, tally),
        documents: measured(server, worker, { kind: 'floor', steps: 1 }, documents, tally),
      },
      rounds,
      progress,
    )
    return {
      floorStepsPerSecond: Math.round(median(figures.steps)),
      floorDocumentsPerSecond: Math.round(median(figures.documents)),
      batch: FLOOR_BATCH,
      batchesAtOnce: FLOOR_LANES,
      documents,
      rounds,
      wrong: tally.wrong,
      server: server.description,
    }
  } finally {
    await worker.close()
  }
}
