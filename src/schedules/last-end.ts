import type { Collection } from 'mongodb'
import { type LastEnd, present, type RunDocument, type ScheduleDocument } from './documents.js'

const MOST_OF_A_MESSAGE = 500

/**
 * Stores the end of a run in its schedule, if the run was Completed or Failed and no later end of this kind is stored. So it may be
 * repeated, and runs that end at the same time may come in any order.
 */
export async function recordLastEnd(
  schedules: Collection<ScheduleDocument>,
  { _id, schedule, outcome, completedAt, scheduledFor, durationMs, error }: Readonly<RunDocument>,
): Promise<void> {
  if ((outcome !== 'Completed' && outcome !== 'Failed') || !completedAt) return
  const kept = error ? { name: error.name, message: error.message.slice(0, MOST_OF_A_MESSAGE) } : undefined
  const end: LastEnd = { run: _id, at: completedAt, scheduledFor, ...present({ durationMs, error: kept }) }
  const [name, also] =
    outcome === 'Completed'
      ? (['lastSuccess', { lastSuccessAt: completedAt }] as const)
      : (['lastFailure', {}] as const)
  await schedules.updateOne({ _id: schedule, [`${name}.at`]: { $not: { $gt: completedAt } } } as object, {
    $set: { [name]: end, ...also },
  })
}
