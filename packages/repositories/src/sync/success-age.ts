import { Cron } from 'phaselock/schedules'
import { durationMs } from 'phaselock/tasks'
import type { Repository } from './documents.js'
import { scheduleOf } from './repository-fields.js'

/** The time since the last success of a repository, and the time between its syncs. */
export interface SuccessAge {
  readonly sinceMs: number
  readonly intervalMs: number
}

/**
 * The age of the last success; a repository that never had one counts from its creation. With a cron expression the interval is half of the time
 * until the second time after that: at twice the interval two of its times have passed, across a weekend too.
 * @param now by the server's clock @param crons parsed expressions, for the next call @returns undefined if no schedule is in force
 */
export function successAge(
  repository: Repository & { readonly createdAt?: Date },
  now: Date,
  crons = new Map<string, Cron>(),
): SuccessAge | undefined {
  const { synced, createdAt, schedule } = repository
  const from = synced?.at ?? createdAt
  if (!from || !schedule || repository.isActive === false) return undefined
  const sinceMs = Math.max(0, now.getTime() - from.getTime())
  try {
    if (schedule.every !== undefined) return { sinceMs, intervalMs: durationMs(schedule.every as '1h', 'every') }
    const { cron = '', timezone = 'UTC' } = scheduleOf(repository) as { cron?: string; timezone?: string }
    const key = `${timezone} ${cron}`
    const times = crons.get(key) ?? new Cron(cron, timezone)
    crons.set(key, times)
    const first = times.next(from)
    const second = first && times.next(first)
    return second && { sinceMs, intervalMs: (second.getTime() - from.getTime()) / 2 }
  } catch {
    return undefined // the repository's own handler parks it, with the problem
  }
}
