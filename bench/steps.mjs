import { contestant } from './contestant.mjs'
import { measured, newTally, sized } from './measure.mjs'
import { alternating, median } from './rounds.mjs'
import { STEPS } from './workload.mjs'

/** The six-step lifecycle on one replica, with and without data, in turn with the floor. */
export async function run(server, { progress, ...size }) {
  const { documents, rounds } = sized(size, { documents: 15_000, rounds: 5 })
  const tally = newTally()
  const floor = await contestant(server.uri)
  const replica = await contestant(server.uri)
  try {
    const engine = { kind: 'engine', steps: STEPS }
    const figures = await alternating(
      {
        floor: measured(server, floor, { kind: 'floor', steps: STEPS }, documents, tally),
        steps: measured(server, replica, { ...engine, lifecycle: 'steps', withData: true }, documents, tally),
        bare: measured(server, replica, { ...engine, lifecycle: 'bare' }, documents, tally),
      },
      rounds,
      progress,
    )
    const share = (name) => round3(median(figures[name].map((figure, i) => figure / figures.floor[i])))
    return {
      stepsPerSecond: Math.round(median(figures.steps)),
      bareStepsPerSecond: Math.round(median(figures.bare)),
      floorStepsPerSecond: Math.round(median(figures.floor)),
      floorShare: share('bare'),
      floorShareWithData: share('steps'),
      documents,
      rounds,
      wrong: tally.wrong,
      replica: tally.last,
      server: server.description,
    }
  } finally {
    await floor.close()
    await replica.close()
  }
}

const round3 = (value) => Math.round(value * 1_000) / 1_000
