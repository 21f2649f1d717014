import { backfillOf, isOtherWaiting, openBackfill } from './backfill.js'
import { type Overlap, type RunDocument, serverTime } from './documents.js'
import type { RunEndReason } from './observer.js'
import { pausedText, pauseOf } from './pauses.js'
import type { Workplace } from './workplace.js'

type Stores = Pick<Workplace, 'schedules' | 'runs'>

/** True if the lock is held by a backfill's run: a due run then waits for it. */
export async function isBackfill({ runs }: Stores, { run }: Overlap): Promise<boolean> {
  if (run === undefined) return false
  const found = await runs().findOne({ _id: run }, { projection: { trigger: 1 } })
  return found?.trigger === 'backfill'
}

/** The reason why a backfill's run can't begin yet: its schedule is paused, or a due run goes first. */
export async function holdup(
  { schedules, runs }: Stores,
  run: Readonly<RunDocument>,
  now: Date,
): Promise<string | undefined> {
  if (run.trigger !== 'backfill') return undefined
  const schedule = await schedules().findOne({ _id: run.schedule }, { projection: { paused: 1, backfill: 1 } })
  if (!schedule || backfillOf(schedule)?.id !== run.backfill?.id || backfillOf(schedule)?.abortedAt) return undefined
  if (pauseOf(schedule, now) !== undefined) return 'somebody to resume its schedule'
  return (await isOtherWaiting(runs(), run, now)) ? 'a run of its schedule that is due: it goes first' : undefined
}

/** The reason why a due run must not run after all. */
export async function whyNot(
  { schedules }: Stores,
  run: Readonly<RunDocument>,
): Promise<{ why: RunEndReason; reason: string } | undefined> {
  if (run.trigger === 'manual') return undefined
  if (run.trigger === 'backfill') {
    if (await openBackfill(schedules(), run)) return undefined
    return { why: 'aborted', reason: 'its backfill was aborted, or is gone' }
  }
  const schedule = await schedules().findOne({ _id: run.schedule }, { projection: { isActive: 1, paused: 1, task: 1 } })
  if (!schedule) return { why: 'deleted', reason: 'the schedule was deleted' }
  if (schedule.isActive === false) return { why: 'deactivated', reason: 'the schedule was deactivated' }
  if (pauseOf(schedule, serverTime(run)) === undefined) return undefined
  return { why: 'paused', reason: pausedText(schedule) }
}
