import { compared, sized } from './measure.mjs'
import { median, rounded } from './statistics.mjs'
import { STEPS } from './workload.mjs'

/** The six-step lifecycle on one replica, with and without data, in turn with the floor. */
export async function run(server, { progress, ...size }) {
  const { pace, rounds } = sized(size, { documents: 15_000, rounds: 5 })
  const jobs = {
    floor: { kind: 'floor', steps: STEPS },
    steps: { kind: 'engine', steps: STEPS, lifecycle: 'steps', withData: true },
    bare: { kind: 'engine', steps: STEPS, lifecycle: 'bare' },
  }
  const { figures, documents, wrong, last } = await compared(server, jobs, { pace, rounds, progress })
  const share = (name) => rounded(median(figures[name].map((figure, i) => figure / figures.floor[i])), 3)
  return {
    stepsPerSecond: Math.round(median(figures.steps)),
    bareStepsPerSecond: Math.round(median(figures.bare)),
    floorStepsPerSecond: Math.round(median(figures.floor)),
    floorShare: share('bare'),
    floorShareWithData: share('steps'),
    documents,
    rounds,
    wrong,
    replica: last,
  }
}
