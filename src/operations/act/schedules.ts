import { typed } from '../../options/index.js'
import type { AuditedEnd } from '../../phases/index.js'
import {
  type Json,
  type ListedSchedule,
  type ListedPause as ListedSchedulePause,
  type NewSchedule,
  NoSuchSchedule,
  type PauseChange,
  PausedByOthers,
  type RunStatistics,
  type RunsOptions,
  type ScheduleListOptions,
  type SchedulePauseOptions,
  Schedules,
  type StatisticsOptions,
  type StoredRun,
} from '../../schedules/index.js'
import { sleep, systemClock } from '../../time/index.js'
import { recorded } from '../system/audit.js'
import { NotFound, Refused } from '../system/errors.js'
import type { System } from '../system/system.js'

export interface ListSchedules extends ScheduleListOptions {
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
  const act = () =>
    onSchedules(system, async (schedules) => {
      const before = await fieldsOf(schedules, id)
      const done = await schedules.upsert(id, fields, { by })
      return { done, before, after: await fieldsOf(schedules, id) }
    })
  const ended = ({ done, before, after }: Around & { readonly done: string }): AuditedEnd => ({
    ...{ outcome: done === 'unchanged' ? 'unchanged' : 'done', before, after },
  })
  const about = { action: 'schedules set', target: scheduleText(id) }
  return recorded(system, about, act, ended).then(({ done }) => done)
}

/** What the audit keeps of a change. */
interface Around {
  readonly before: unknown
  readonly after: unknown
}

/** A schedule's own fields; null: there is no such schedule. */
const fieldsOf = async (schedules: Schedules, id: string) =>
  typeof id === 'string' ? ((await schedules.fields(id)) ?? null) : null

/**
 * Pauses a schedule, or without an id all: nothing of it runs until it is resumed, and missed runs aren't made up for. An earlier pause by the same
 * person is replaced; those of others stay.
 * @returns how many were paused
 * @example await pauseSchedules(system, 'sync', { by: 'anna', reason: 'it is moving' }) // 1
 * @throws NotFound, InvalidSchedule
 */
export function pauseSchedules(
  system: System,
  id: string | undefined,
  pause: SchedulePauseOptions & { readonly by: string },
): Promise<number> {
  return aroundPauses(system, 'schedules pause', id, async (schedules) =>
    id === undefined ? schedules.pauseAll(pause) : schedules.pause(id, pause),
  )
}

/** Edits pauses; with all schedules the audit has those of the first 100 pauses. */
async function aroundPauses(
  system: System,
  action: string,
  id: string | undefined,
  edit: (schedules: Schedules) => Promise<number | PauseChange>,
): Promise<number> {
  const act = () =>
    onSchedules(system, async (schedules) => {
      const before = id === undefined ? await schedules.pauses() : []
      const done = await edit(schedules)
      return typeof done === 'number' ? { count: done, before, after: await schedules.pauses() } : { count: 1, ...done }
    })
  const ended = ({ before, after }: Around): AuditedEnd => ({
    ...{ outcome: 'done', before: { pauses: before }, after: { pauses: after } },
  })
  return (await recorded(system, { action, target: scheduleText(id) }, act, ended)).count
}

/**
 * What is paused of a schedule, or without an id of all, the first 100.
 * @example await listSchedulePauses(system, 'sync') // [{ schedule: 'sync', by: 'anna', reason: 'it is moving', at: ... }]
 */
export function listSchedulePauses(system: System, id?: string): Promise<readonly ListedSchedulePause[]> {
  return onSchedules(system, (schedules) => schedules.pauses({ schedule: id }))
}

/**
 * Ends a pause of a schedule, one's own or the only one there is, and activates one that was deactivated; without an id a pause of each that is paused.
 * With its last pause it is resumed from then on.
 * @param of whose pause is meant instead
 * @returns of how many schedules a pause has ended
 * @example await resumeSchedules(system, undefined, 'anna') // 12
 * @throws NotFound; Refused where several people have paused it, and none of these pauses is meant
 */
export function resumeSchedules(system: System, id: string | undefined, by: string, of?: string): Promise<number> {
  return aroundPauses(system, 'schedules resume', id, (schedules) =>
    id === undefined ? schedules.resumeAll({ by, of }) : schedules.resume(id, { by, of }),
  )
}

/**
 * Deletes a schedule; its runs stay, and those in progress continue.
 * @example await removeSchedule(system, 'sync')
 * @throws NotFound
 */
export async function removeSchedule(system: System, id: string): Promise<void> {
  const act = () =>
    onSchedules(system, async (schedules) => {
      const before = await fieldsOf(schedules, id)
      if (!(await schedules.remove(id))) throw noSchedule(id)
      return before
    })
  const ended = (before: unknown): AuditedEnd => ({ outcome: 'done', before, after: null })
  await recorded(system, { action: 'schedules remove', target: scheduleText(id) }, act, ended)
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

/** When it resolves, replicas have been notified. @throws NotFound instead of NoSuchSchedule, Refused instead of PausedByOthers */
export async function onSchedules<T>(
  { db, collections, doorbell }: System,
  act: (schedules: Schedules) => Promise<T>,
): Promise<T> {
  const schedules = new Schedules({ db, collections, doorbell })
  try {
    return await act(schedules)
  } catch (error) {
    if (error instanceof NoSuchSchedule) throw noSchedule(error.schedule)
    throw error instanceof PausedByOthers ? pausedByOthers(error) : error
  } finally {
    await schedules.flush()
  }
}

const noSchedule = (name: string): NotFound =>
  new NotFound(`there is no schedule '${name}'`, { reason: 'noSchedule', name }, 'see: phaselock schedules')

function pausedByOthers({ schedule, by, of }: PausedByOthers): Refused {
  const owners = by.map((owner) => owner ?? 'somebody')
  const meant = of === undefined ? 'none of these pauses is yours' : `none is ${of}'s`
  return new Refused(
    `schedule '${schedule}' is paused by ${owners.join(', ')}: ${meant}`,
    { reason: 'pausedByOthers', by: owners },
    `to end another's: phaselock schedules resume ${typed(schedule)} --of ${typed(owners[0]!)}`,
  )
}
