import { sumOf } from '../../phases/index.js'
import { formatMs } from '../../time/index.js'
import { type Count, countText } from '../inspect/count-text.js'
import type { Sources } from './read.js'

/** What happens while nothing needs a person. */
export interface Quiet {
  /** The recorded ends of steps in a minute, on average over the last ten; null: none is known, and not all are counted. */
  readonly perMinute: number | null
  /** The replicas that don't count them; null: this user may not read which. */
  readonly uncounted: readonly string[] | null
  /** True if it is at least so many: not each lifecycle's are read, or not each replica's. */
  readonly isPartly: boolean
  /** By the census, like the following ones: at least so many if a lifecycle has none; null: no lifecycle has one. */
  readonly due: Count | null
  readonly held: Count | null
  readonly sleeping: Count | null
  /** The next run of a schedule; null: none is planned. */
  readonly next: { readonly schedule: string; readonly at: Date } | null
}

const MINUTES = 10

export function quietOf({
  census,
  without,
  schedules,
  flows,
  now,
}: Pick<Sources, 'census' | 'without' | 'schedules' | 'flows' | 'now'>): Quiet {
  const phases = [...census.values()].flatMap((one) => one.phases)
  const isCountedPartly = without.size > 0
  const counted = (counts: readonly Count[]): Count | null =>
    census.size === 0 ? null : { ...sumOf(counts), ...(isCountedPartly && { more: true }) }
  const runs = schedules.flatMap(({ _id, nextRunAt }) =>
    typeof _id === 'string' && nextRunAt instanceof Date && nextRunAt > now ? [{ schedule: _id, at: nextRunAt }] : [],
  )
  runs.sort((a, b) => a.at.getTime() - b.at.getTime())
  // The last minute isn't over.
  const intervals = [...flows.values()].flatMap((one) => one.intervals.slice(-MINUTES - 1, -1))
  const recorded = intervals.reduce((sum, one) => sum + one.recorded, 0)
  const named = [...flows.values()].flatMap((one) => (one.uncounted === null ? [] : [one.uncounted]))
  const uncounted = named.length < flows.size ? null : [...new Set(named.flat())]
  const isPartly = flows.size < census.size || isCountedPartly || uncounted?.length !== 0
  return {
    perMinute: flows.size > 0 && (recorded > 0 || !isPartly) ? Math.round(recorded / MINUTES) : null,
    ...{ uncounted, isPartly },
    due: counted(phases.map(({ due }) => due)),
    held: counted(phases.map(({ held }) => ({ n: held }))),
    sleeping: counted(phases.map(({ sleeping }) => sleeping)),
    next: runs[0] ?? null,
  }
}

/** The same in one line. */
export function quietText({ perMinute, isPartly, due, held, sleeping, next }: Quiet, now: Date): string {
  const speed =
    perMinute === null
      ? 'throughput unknown'
      : `${isPartly ? 'at least ' : ''}${perMinute.toLocaleString('en-US')} steps per minute`
  const run = next === null ? '' : `; next: schedule ${next.schedule} in ${formatMs(next.at.getTime() - now.getTime())}`
  const documents =
    due && held && sleeping
      ? `${countText(due)} due, ${countText(held)} held, ${countText(sleeping)} asleep`
      : 'documents not counted'
  return `${speed}; ${documents}${run}`
}
