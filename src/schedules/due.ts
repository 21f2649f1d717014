import { createHash } from 'node:crypto'
import type { CheckedSchedule } from './definition/read-schedule.js'

/** The maximum number of due times that are listed one by one: the latest ones, if more were missed. */
export const MOST_DUE = 300
const FIRST_WINDOW_MS = 60_000
/** The maximum number of due times to go through, at 40 us each. */
const FAR_TOO_MANY = 1_000

/** Due times that have come, the oldest first. */
export interface DueTimes {
  readonly times: readonly Date[]
  /** If there were more than {@link MOST_DUE}: the first of those that are not listed. */
  readonly earlierSince: Date | undefined
}

/**
 * The first due time after `after`; undefined if there is no further one.
 * @param anchor the time from which an interval counts when it has no `startAt`
 */
export function nextDue(schedule: CheckedSchedule, after: Date, anchor: Date): Date | undefined {
  const { startAt, endAt } = schedule
  // A due time at startAt itself counts.
  const from = startAt && startAt > after ? new Date(startAt.getTime() - 1) : after
  const next = nextOf(schedule, from, anchor)
  // There is no due time past the last possible date. Comparisons with an invalid date are all false, so a search with them would never
  // end.
  return next && !Number.isNaN(next.getTime()) && (!endAt || next <= endAt) ? next : undefined
}

function nextOf({ timing, startAt }: CheckedSchedule, after: Date, anchor: Date): Date | undefined {
  switch (timing.kind) {
    case 'once':
      return timing.at > after ? timing.at : undefined
    case 'cron':
      return timing.cron.next(after)
    case 'interval': {
      const zero = (startAt ?? anchor).getTime()
      const rounds = Math.floor((after.getTime() - zero) / timing.everyMs) + 1
      return new Date(zero + Math.max(startAt ? 0 : 1, rounds) * timing.everyMs)
    }
  }
}

/**
 * All due times from `first`, itself one, to `now`; only the latest if there are many. They are found without going through all, in a
 * window before `now`. It grows until it has enough of them, and shrinks again if it has far too many.
 */
export function dueTimes(schedule: CheckedSchedule, first: Date, now: Date, anchor: Date): DueTimes {
  if (schedule.timing.kind === 'once') return { times: [first], earlierSince: undefined }
  let [windowMs, tooSmallMs, tooLargeMs] = [FIRST_WINDOW_MS, 0, Number.POSITIVE_INFINITY]
  for (;;) {
    const begin = Math.max(first.getTime(), now.getTime() - windowMs)
    const isAll = begin === first.getTime()
    const times = timesWithin(schedule, isAll, new Date(begin), now, anchor)
    if (times === 'too many') tooLargeMs = windowMs
    else if (isAll && times.length <= MOST_DUE) return { times, earlierSince: undefined }
    else if (isAll || times.length >= MOST_DUE) return { times: times.slice(-MOST_DUE), earlierSince: first }
    else tooSmallMs = windowMs
    windowMs = tooLargeMs === Number.POSITIVE_INFINITY ? windowMs * 2 : Math.ceil((tooSmallMs + tooLargeMs) / 2)
  }
}

/** The due times within a window. They are at least a second apart, so a window that is small enough never has too many. */
function timesWithin(
  schedule: CheckedSchedule,
  withBegin: boolean,
  begin: Date,
  now: Date,
  anchor: Date,
): Date[] | 'too many' {
  const times = withBegin ? [begin] : []
  let last = begin
  for (;;) {
    const next = nextDue(schedule, last, anchor)
    if (!next || next > now) return times
    if (times.length >= FAR_TOO_MANY) return 'too many'
    times.push(next)
    last = next
  }
}

/** The delay of a run after its due time: random, but the same on all replicas. */
export function jitterOf(schedule: CheckedSchedule, id: string, due: Date): number {
  if (schedule.jitterMs === 0) return 0
  const hash = createHash('sha256').update(`${id}@${due.toISOString()}`).digest()
  return Math.floor((hash.readUInt32BE(0) / 2 ** 32) * (schedule.jitterMs + 1))
}
