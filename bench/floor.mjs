import { FLOOR_BATCH, FLOOR_LANES } from './hand-written.mjs'
import { compared, sized } from './measure.mjs'
import { median } from './statistics.mjs'
import { STEPS } from './workload.mjs'

/** What the server gives to a program written by hand for just this: six recorded steps a document, and one. */
export async function run(server, { progress, ...size }) {
  const { pace, rounds } = sized(size, { documents: 15_000, rounds: 5 })
  const jobs = { steps: { kind: 'floor', steps: STEPS }, documents: { kind: 'floor', steps: 1 } }
  const { figures, documents, wrong } = await compared(server, jobs, { pace, rounds, progress })
  return {
    floorStepsPerSecond: Math.round(median(figures.steps)),
    floorDocumentsPerSecond: Math.round(median(figures.documents)),
    batch: FLOOR_BATCH,
    batchesAtOnce: FLOOR_LANES,
    documents,
    rounds,
    wrong,
  }
}
