/**
 * The figures to reach on two cores with the embedded engine. `least` has to be reached, `aim` is where it should get to.
 * `fewer`: less is better. A list stands for the fields of the same name without an index.
 *
 * @type {Readonly<Record<string, { least: number, aim: number, fewer?: true, unit?: string, about: string }>>}
 */
export const TARGETS = {
  stepsPerSecond: {
    least: 12_000,
    aim: 18_000,
    about: 'six-step lifecycle, each step recorded with a value of its own',
  },
  bareStepsPerSecond: { least: 15_000, aim: 24_000, about: 'the same without data' },
  documentsPerSecond: { least: 9_000, aim: 12_500, about: 'no-op documents, insert to done' },
  floorShare: { least: 0.6, aim: 0.9, about: 'share of the hand-written floor in the same run' },
  wokenUnderLoadP95Ms: {
    least: 2_000,
    aim: 500,
    fewer: true,
    unit: 'ms',
    about: 'under overload, a document that comes due by waiting or by a crash is stepped within, p95',
  },
  recordP95Ms: {
    least: 10,
    aim: 10,
    fewer: true,
    unit: 'ms',
    about: 'from a handler’s end to the command that records it, below saturation, p95',
  },
  twoReplicas: { least: 1.0, aim: 1.2, about: 'two replicas against one' },
  lostShare: { least: 0.05, aim: 0.01, fewer: true, about: 'candidates lost to another replica' },
  doorbellP50Ms: { least: 12, aim: 3, fewer: true, unit: 'ms', about: 'pick-up by doorbell, p50' },
  doorbellP95Ms: { least: 25, aim: 8, fewer: true, unit: 'ms', about: 'pick-up by doorbell, p95' },
  tickP95Ms: {
    least: 1_100,
    aim: 1_000,
    fewer: true,
    unit: 'ms',
    about: 'pick-up of documents written by hand, one replica, p95',
  },
  idleCommandsPerSecond: {
    least: 1.2,
    aim: 1.05,
    fewer: true,
    about: 'commands a second of an idle replica, 10 lifecycles, all its clients',
  },
  idleCommandsPerSecondUnseen: {
    least: 1.08,
    aim: 1.05,
    fewer: true,
    about: 'the same with beats and sweeps switched off',
  },
  readyToCreatedP95Ms: {
    least: 200,
    aim: 100,
    fewer: true,
    unit: 'ms',
    about: "from a certificate's Ready to its domain's Created, with watches, p95",
  },
  keysPerClaim: {
    least: 1.2,
    aim: 1.0,
    fewer: true,
    about: 'keys examined for each candidate returned, the worst of 1k / 100k / 1M documents',
  },
  recoverySeconds: { least: 31, aim: 30.2, fewer: true, unit: 's', about: 'after kill -9, lockTimeout 30 s' },
  handoverSeconds: { least: 1, aim: 0.1, fewer: true, unit: 's', about: 'after SIGTERM' },
  rssIdleMb: { least: 90, aim: 70, fewer: true, unit: 'MB', about: 'resident memory of an idle replica' },
  rssLoadedMb: { least: 160, aim: 120, fewer: true, unit: 'MB', about: 'resident memory of a replica under load' },
  heapSlopeMbPerMinute: {
    least: 1,
    aim: 0.5,
    fewer: true,
    unit: 'MB/min',
    about: 'growth of the heap after GC over the last half of a run under load',
  },
  statusCpuMs: { least: 10, aim: 5, fewer: true, unit: 'ms', about: "the server's CPU for a status" },
  scrapeCpuMs: { least: 10, aim: 5, fewer: true, unit: 'ms', about: "the server's CPU for a scrape of the metrics" },
  censusCpuMs: {
    least: 400,
    aim: 150,
    fewer: true,
    unit: 'ms',
    about: "the server's CPU for a census of 300,000 documents in 3 lifecycles",
  },
  whyCpuMs: { least: 10, aim: 5, fewer: true, unit: 'ms', about: "the server's CPU for why a document doesn't go on" },
  pageByCauseP95Ms: { least: 50, aim: 20, fewer: true, unit: 'ms', about: 'a page of 50 documents by cause, p95' },
  besideReaders: { least: 0.97, aim: 1, about: 'steps beside 20 readers once a second, of those without' },
}

/** An object of figures by size has its worst as `worst`. */
const oneValueOf = (figure) => (typeof figure === 'object' && figure !== null ? figure.worst : figure)

/**
 * The targets that these figures are about, each with its verdict: `aim` and `least` are reached, `missed` is not. Figures
 * that are absent or null (not judged in this run) are left out.
 * @returns {{ figure: string, value: number, least: number, aim: number, verdict: 'aim' | 'least' | 'missed' }[]}
 */
export function judged(figures) {
  return Object.entries(TARGETS).flatMap(([figure, { least, aim, fewer = false }]) => {
    const value = oneValueOf(figures[figure])
    if (typeof value !== 'number') return []
    const reaches = (bound) => (fewer ? value <= bound : value >= bound)
    return [{ figure, value, least, aim, verdict: reaches(aim) ? 'aim' : reaches(least) ? 'least' : 'missed' }]
  })
}
