import type { AuditedEnd } from '../../phases/index.js'
import {
  type Json,
  type ListedSchedule,
  type ListOptions,
  type NewSchedule,
  NoSuchSchedule,
  type PauseOptions,
  type RunStatistics,
  type RunsOptions,
  Schedules,
  type StatisticsOptions,
  type StoredRun,
} from '../../schedules/index.js'
import { sleep, systemClock } from '../../time/index.js'
import { recorded } from '../system/audit.js'
import { NotFound, Refused } from '../system/errors.js'
import type { System } from '../system/system.js'

export interface ListSchedules extends ListOptions {
  readonly phase?: 'Active' | 'Paused' | 'Finished' | 'Broken' | undefined
}

/**
 * Schedules by id, each with its next run and its latest one; `more` is true if others follow.
 * @example await listSchedules(system, { phase: 'Broken' }) // { schedules: [{ _id: 'sync', broken: 'cron: ...' }], more: false }
 */
export function listSchedules(
  system: System,
  { limit = 100, ...which }: ListSchedules = {},
): Promise<{ readonly schedules: readonly ListedSchedule[]; readonly more: boolean }> {
  return onSchedules(system, async (schedules) => {
    const found = await schedules.list({ ...which, limit: limit + 1 })
    return { schedules: found.slice(0, limit), more: found.length > limit }
  })
}

/**
 * Creates a schedule, or replaces the one with its id.
 * @example await setSchedule(system, 'sync', { task: 'sync', cron: '0 6 * * *' }, 'anna') // 'created'
 * @throws InvalidSchedule: nothing is stored
 */
export function setSchedule(
  system: System,
  id: string,
  fields: NewSchedule,
  by: string,
): Promise<'created' | 'replaced' | 'unchanged'> {
  const act = () => onSchedules(system, (schedules) => schedules.upsert(id, fields, { by }))
  const ended = (done: string): AuditedEnd => ({ outcome: done === 'unchanged' ? 'unchanged' : 'done', after: fields })
  return recorded(system, { action: 'schedules set', target: `schedule ${id}` }, act, ended)
}

/**
 * Pauses a schedule, or without an id all: nothing of it runs until it is resumed, and missed runs aren't run later.
 * @returns the number of schedules that were paused
 * @example await pauseSchedules(system, 'sync', { by: 'anna', reason: 'it is moving' }) // 1
 * @throws NotFound, InvalidSchedule
 */
export function pauseSchedules(
  system: System,
  id: string | undefined,
  pause: PauseOptions & { readonly by: string },
): Promise<number> {
  const act = () =>
    onSchedules(system, (schedules) =>
      id === undefined ? schedules.pauseAll(pause) : schedules.pause(id, pause).then(() => 1),
    )
  return recorded(system, { action: 'schedules pause', target: scheduleText(id) }, act)
}

/**
 * Resumes a schedule from now on, even one that was deactivated; without an id all that are paused.
 * @returns the number of schedules that were resumed
 * @example await resumeSchedules(system, undefined, 'anna') // 12
 * @throws NotFound
 */
export function resumeSchedules(system: System, id: string | undefined, by: string): Promise<number> {
  const act = () =>
    onSchedules(system, (schedules) =>
      id === undefined ? schedules.resumeAll({ by }) : schedules.resume(id, { by }).then(() => 1),
    )
  return recorded(system, { action: 'schedules resume', target: scheduleText(id) }, act)
}

/**
 * Deletes a schedule; its runs stay, and those in progress continue.
 * @example await removeSchedule(system, 'sync')
 * @throws NotFound
 */
export async function removeSchedule(system: System, id: string): Promise<void> {
  const act = () =>
    onSchedules(system, async (schedules) => {
      if (!(await schedules.remove(id))) throw noSchedule(id)
    })
  await recorded(system, { action: 'schedules remove', target: scheduleText(id) }, act)
}

const scheduleText = (id: string | undefined): string => (id === undefined ? 'all schedules' : `schedule ${id}`)

const LOOK_EVERY_MS = 200

/** The options of `listRuns`. `timezone` is the zone for the hours and days in the statistics. */
export type ListRuns = RunsOptions & Pick<StatisticsOptions, 'timezone'>

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
 * @param args arguments that replace the schedule's own
 * @returns the run's id
 * @example await startRun(system, 'sync', { by: 'anna', args: { full: true } }) // 'sync@2026-01-01T10:12:03.417Z'
 * @throws NotFound, InvalidSchedule
 */
export function startRun(
  system: System,
  schedule: string,
  request: { readonly by: string; readonly args?: Json | undefined },
): Promise<string> {
  const act = () => onSchedules(system, (schedules) => schedules.run(schedule, request))
  return recorded(system, { action: 'run', target: scheduleText(schedule) }, act, (run) => ({
    outcome: 'done',
    after: { run },
  }))
}

/** True once a run has an outcome. */
export const isOver = ({ phase }: StoredRun): boolean => phase !== 'Queued' && phase !== 'Running'

/**
 * Waits for a run until it is over, or this many milliseconds have passed.
 * @example await waitForRun(system, 'sync@2026-01-01T10:12:03.417Z', 5_000) // { phase: 'Completed', durationMs: 4_200, ... }
 * @throws Refused if it was deleted
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

/** Calls a function with the schedules; when it resolves, replicas have been notified. @throws NotFound instead of NoSuchSchedule */
export async function onSchedules<T>(
  { db, collections, doorbell }: System,
  act: (schedules: Schedules) => Promise<T>,
): Promise<T> {
  const schedules = new Schedules({ db, collections, doorbell })
  try {
    return await act(schedules)
  } catch (error) {
    throw error instanceof NoSuchSchedule ? noSchedule(error.schedule) : error
  } finally {
    await schedules.flush()
  }
}

const noSchedule = (name: string): NotFound =>
  new NotFound(`there is no schedule '${name}'`, { reason: 'noSchedule', name }, 'see: phaselock schedules')
