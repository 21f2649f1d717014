import { type ListedSchedule, type NewSchedule, NoSuchSchedule, Schedules } from '../schedules/index.js'
import { NotFound } from './errors.js'
import type { System } from './system.js'

export interface ListSchedules {
  readonly phase?: 'Active' | 'Paused' | 'Finished' | 'Broken' | undefined
  /** Only those after this id. */
  readonly after?: string | undefined
  /** At most this many. Default 100. */
  readonly limit?: number | undefined
}

/**
 * Schedules by id, each with its next run and its latest one; `more`: there are others after the last one.
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
 * Makes a schedule, or replaces what exists under its id.
 * @example await setSchedule(system, 'sync', { task: 'sync', cron: '0 6 * * *' }, 'anna') // 'created'
 * @throws InvalidSchedule: nothing is stored
 */
export function setSchedule(
  system: System,
  id: string,
  fields: NewSchedule,
  by: string,
): Promise<'created' | 'replaced' | 'unchanged'> {
  return onSchedules(system, (schedules) => schedules.upsert(id, fields, { by }))
}

export interface PauseRequest {
  readonly by: string
  /** When it ends by itself. Default: when somebody resumes it. */
  readonly until?: Date | undefined
  readonly reason?: string | undefined
}

/**
 * Pauses a schedule, or without an id all: nothing of it runs until it is resumed, and missed runs aren't made up for.
 * @returns how many were paused
 * @example await pauseSchedules(system, 'sync', { by: 'anna', reason: 'it is moving' }) // 1
 * @throws NotFound, InvalidSchedule
 */
export function pauseSchedules(system: System, id: string | undefined, pause: PauseRequest): Promise<number> {
  return onSchedules(system, (schedules) =>
    id === undefined ? schedules.pauseAll(pause) : schedules.pause(id, pause).then(() => 1),
  )
}

/**
 * Resumes a schedule from now on, even one that was deactivated; without an id all that are paused.
 * @returns how many were resumed
 * @example await resumeSchedules(system, undefined, 'anna') // 12
 * @throws NotFound
 */
export function resumeSchedules(system: System, id: string | undefined, by: string): Promise<number> {
  return onSchedules(system, (schedules) =>
    id === undefined ? schedules.resumeAll({ by }) : schedules.resume(id, { by }).then(() => 1),
  )
}

/**
 * Deletes a schedule; its runs stay, and those under way go on.
 * @example await removeSchedule(system, 'sync')
 * @throws NotFound
 */
export async function removeSchedule(system: System, id: string): Promise<void> {
  await onSchedules(system, async (schedules) => {
    if (!(await schedules.remove(id))) throw noSchedule(id)
  })
}

/** When it resolves, replicas have been notified. @throws NotFound instead of NoSuchSchedule */
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

export const noSchedule = (name: string): NotFound =>
  new NotFound(`there is no schedule '${name}'`, { reason: 'noSchedule', name }, 'see: phaselock schedules')
