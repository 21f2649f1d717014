import {
  type Backfill,
  type BackfillOptions,
  type BackfillPreview,
  type BackfillState,
  InvalidBackfill,
} from '../../schedules/index.js'
import { recorded } from '../system/audit.js'
import { Refused, UsageError } from '../system/errors.js'
import type { System } from '../system/system.js'
import { onSchedules } from './schedules.js'

/**
 * Counts the runs that a backfill would make. Nothing is changed.
 * @example await previewBackfill(system, 'nightly', { from: new Date('2026-11-01') }) // { runs: 19, dueTimes: 22, ... }
 * @throws NotFound, UsageError, Refused
 */
export const previewBackfill = (system: System, schedule: string, options: BackfillOptions): Promise<BackfillPreview> =>
  onSchedules(system, (schedules) => refusing(schedules.previewBackfill(schedule, options)))

/**
 * Begins to run each due time of a past range. Replicas that know the task do the work.
 * @example await beginBackfill(system, 'nightly', { from: new Date('2026-11-01'), by: 'anna' }) // { id: 'bf4f2a9c1b', runs: 19, ... }
 * @throws NotFound, UsageError, Refused
 */
export function beginBackfill(system: System, schedule: string, options: BackfillOptions): Promise<Backfill> {
  const act = () => onSchedules(system, (schedules) => refusing(schedules.backfill(schedule, options)))
  return recorded(
    system,
    { action: 'backfills run', target: `schedule ${schedule}` },
    act,
    ({ fields: _, ...after }) => ({
      outcome: 'done',
      after,
    }),
  )
}

/**
 * The latest backfill of each schedule, or of one.
 * @example await listBackfills(system) // [{ schedule: 'nightly', condition: 'Running', over: 4, runs: 19, ... }]
 * @throws NotFound
 */
export function listBackfills(
  system: System,
  { schedule, limit = 100 }: { readonly schedule?: string | undefined; readonly limit?: number | undefined } = {},
): Promise<readonly BackfillState[]> {
  return onSchedules(system, async (schedules) => {
    if (schedule === undefined) return schedules.backfills({ limit })
    const state = await schedules.backfillState(schedule)
    return state ? [state] : []
  })
}

/** Resumes a backfill whose runs are gone. @throws NotFound, Refused */
export async function resumeBackfill(system: System, schedule: string): Promise<void> {
  const act = () => onSchedules(system, (schedules) => refusing(schedules.resumeBackfill(schedule)))
  await recorded(system, { action: 'backfills resume', target: `schedule ${schedule}` }, act)
}

/** Aborts a backfill: no further run of it begins; those in progress continue. @throws NotFound, Refused */
export async function abortBackfill(system: System, schedule: string, by: string): Promise<void> {
  const act = () => onSchedules(system, (schedules) => refusing(schedules.abortBackfill(schedule, { by })))
  await recorded(system, { action: 'backfills abort', target: `schedule ${schedule}` }, act)
}

const refusing = <T>(done: Promise<T>): Promise<T> =>
  done.catch((error: unknown) => {
    if (!(error instanceof InvalidBackfill)) throw error
    throw error.ofOptions ? new UsageError(error.message) : new Refused(error.message)
  })
