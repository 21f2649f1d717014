import type { Json, RunStatistics, StoredRun } from '../schedules/index.js'
import { sleep, systemClock } from '../time/index.js'
import { Refused } from './errors.js'
import { noSchedule, onSchedules } from './schedules.js'
import type { System } from './system.js'

const LOOK_EVERY_MS = 200

export interface ListRuns {
  readonly phase?: StoredRun['phase'] | undefined
  /** At most this many. Default 20. */
  readonly limit?: number | undefined
  /** For the hours and days in the statistics. Default UTC. */
  readonly timezone?: string | undefined
}

/**
 * A schedule's runs, the latest first, and statistics over all that are kept.
 * @example await listRuns(system, 'sync', { phase: 'Failed' }) // { statistics: { runs: 214, successRate: 0.99, ... }, runs: [...] }
 * @throws NotFound, UnknownTimeZone
 */
export function listRuns(
  system: System,
  schedule: string,
  { phase, limit, timezone }: ListRuns = {},
): Promise<{ readonly statistics: RunStatistics; readonly runs: readonly StoredRun[] }> {
  return onSchedules(system, async (schedules) => {
    const [runs, statistics] = await Promise.all([
      schedules.runs(schedule, { limit, phase }),
      schedules.statistics(schedule, { timezone }),
    ])
    if (statistics.runs === 0 && !(await schedules.get(schedule))) throw noSchedule(schedule)
    return { statistics, runs }
  })
}

/**
 * Runs a schedule once, now, on a replica that knows its task and under the same lock as its other runs.
 * @param args instead of the schedule's own
 * @returns the run's id
 * @example await startRun(system, 'sync', { by: 'anna', args: { full: true } }) // 'sync@2026-01-01T10:12:03.417Z'
 * @throws NotFound, InvalidSchedule
 */
export function startRun(
  system: System,
  schedule: string,
  request: { readonly by: string; readonly args?: Json | undefined },
): Promise<string> {
  return onSchedules(system, (schedules) => schedules.run(schedule, request))
}

/** Whether a run has an outcome. */
export const isOver = ({ phase }: StoredRun): boolean => phase !== 'Queued' && phase !== 'Running'

/**
 * A run, once it is over or this many milliseconds have passed.
 * @example await waitForRun(system, 'sync@2026-01-01T10:12:03.417Z', 5_000) // { phase: 'Completed', durationMs: 4_200, ... }
 * @throws Refused where somebody has deleted it
 */
export function waitForRun(system: System, name: string, atMostMs: number): Promise<StoredRun> {
  const untilMs = systemClock.monotonicMs() + atMostMs
  return onSchedules(system, async (schedules) => {
    for (;;) {
      const run = await schedules.findRun(name)
      if (!run) throw new Refused(`${name} is gone: somebody deleted it`, { reason: 'noRun', name })
      if (isOver(run) || systemClock.monotonicMs() >= untilMs) return run
      await sleep(LOOK_EVERY_MS)
    }
  })
}
