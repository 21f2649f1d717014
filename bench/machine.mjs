import { availableParallelism, cpus, loadavg, totalmem } from 'node:os'

/**
 * What the figures were taken on.
 * @param engine the source and the version of the database, as server.mjs describes it
 */
export const machine = (engine) => ({
  cores: availableParallelism(),
  cpu: cpus()[0]?.model ?? 'unknown',
  memoryGb: Math.round(totalmem() / 2 ** 30),
  platform: `${process.platform} ${process.arch}`,
  node: process.version,
  ...(engine ? { engine } : {}),
  /** Of the minute before the end: the benchmark's own load, and whatever else ran. */
  loadAverage: Math.round(loadavg()[0] * 10) / 10,
})
