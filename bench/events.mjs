import { besideHanging } from './hanging.mjs'
import { compared, sized } from './measure.mjs'
import { median, rounded } from './statistics.mjs'
import { STEPS } from './workload.mjs'

/**
 * What it costs to keep events, and to tell callbacks: the six-step lifecycle without data on one replica with events off, sampled and full, and one
 * step that does nothing without and with a callback, each in turn; and how late callbacks begin beside 1,000 that hang.
 */
export async function run(server, { progress, ...size }) {
  const { pace, rounds } = sized(size, { documents: 8_000, rounds: 5 })
  const jobs = {
    off: { kind: 'engine', steps: STEPS, lifecycle: 'bare' },
    sampled: { kind: 'engine', steps: STEPS, lifecycle: 'bareSampled' },
    full: { kind: 'engine', steps: STEPS, lifecycle: 'bareFull' },
    noop: { kind: 'engine', steps: 1, lifecycle: 'noop' },
    called: { kind: 'engine', steps: 1, lifecycle: 'noopCalled' },
  }
  const { figures, documents, wrong, last } = await compared(server, jobs, { pace, rounds, progress })
  const of = (name) => Math.round(median(figures[name]))
  const share = (one, other) => rounded(median(figures[one].map((figure, i) => figure / figures[other][i])), 3)
  return {
    offPerSecond: of('off'),
    sampledPerSecond: of('sampled'),
    fullPerSecond: of('full'),
    sampledShare: share('sampled', 'off'),
    fullShare: share('full', 'off'),
    uncalledPerSecond: of('noop'),
    calledPerSecond: of('called'),
    calledShare: share('called', 'noop'),
    ...(await besideHanging(server, progress)),
    documents,
    rounds,
    wrong,
    replica: last,
  }
}
