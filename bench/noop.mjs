import { compared, sized } from './measure.mjs'
import { median, rounded } from './statistics.mjs'

/**
 * Documents of which one step does nothing, by one replica and by the floor: from the first insert to the last one done
 * (the owner inserts while they work), and from a backlog that is there when they begin, as other queues are measured.
 */
export async function run(server, { progress, ...size }) {
  const { pace, rounds } = sized(size, { documents: 30_000, rounds: 5 })
  const floor = { kind: 'floor', steps: 1 }
  const noop = { kind: 'engine', lifecycle: 'noop', steps: 1 }
  const jobs = {
    floor: { ...floor, flows: true },
    noop: { ...noop, flows: true },
    floorBacklog: floor,
    noopBacklog: noop,
  }
  const { figures, documents, wrong, last } = await compared(server, jobs, { pace, rounds, progress })
  const share = (name, of) => rounded(median(figures[name].map((figure, i) => figure / figures[of][i])), 3)
  return {
    documentsPerSecond: Math.round(median(figures.noop)),
    floorDocumentsPerSecond: Math.round(median(figures.floor)),
    floorShareOfDocuments: share('noop', 'floor'),
    backlogDocumentsPerSecond: Math.round(median(figures.noopBacklog)),
    floorBacklogDocumentsPerSecond: Math.round(median(figures.floorBacklog)),
    documents,
    rounds,
    wrong,
    replica: last,
  }
}
