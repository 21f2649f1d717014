import { contestant } from './contestant.mjs'
import { measured, newTally, sized } from './measure.mjs'
import { alternating, median } from './rounds.mjs'

/** Documents of which one step does nothing: one replica, in turn with the floor's one step. */
export async function run(server, { progress, ...size }) {
  const { documents, rounds } = sized(size, { documents: 30_000, rounds: 5 })
  const tally = newTally()
  const floor = await contestant(server.uri)
  const replica = await contestant(server.uri)
  try {
    const figures = await alternating(
      {
        floor: measured(server, floor, { kind: 'floor', steps: 1 }, documents, tally),
        noop: measured(server, replica, { kind: 'engine', lifecycle: 'noop', steps: 1 }, documents, tally),
      },
      rounds,
      progress,
    )
    return {
      documentsPerSecond: Math.round(median(figures.noop)),
      floorDocumentsPerSecond: Math.round(median(figures.floor)),
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
