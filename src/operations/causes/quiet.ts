import { formatMs } from '../../time/index.js'
import { type Count, countText } from '../inspect/count-text.js'
import type { Sources } from './read.js'

/** What happens while nothing needs a person. */
export interface Quiet {
  /** Recorded moves of documents in a minute; null: replicas send none. */
  readonly perMinute: number | null
  readonly due: Count
  readonly held: number
  readonly sleeping: Count
  /** The next run of a schedule; null: none is planned. */
  readonly next: { readonly schedule: string; readonly at: Date } | null
}

export function quietOf({ census, schedules, now }: Pick<Sources, 'census' | 'schedules' | 'now'>): Quiet {
  const phases = [...census.values()].flatMap((one) => one.phases)
  const runs = schedules.flatMap(({ _id, nextRunAt }) =>
    typeof _id === 'string' && nextRunAt instanceof Date && nextRunAt > now ? [{ schedule: _id, at: nextRunAt }] : [],
  )
  runs.sort((a, b) => a.at.getTime() - b.at.getTime())
  return {
    perMinute: null,
    due: sumOf(phases.map(({ due }) => due)),
    held: phases.reduce((sum, { held }) => sum + held, 0),
    sleeping: sumOf(phases.map(({ sleeping }) => sleeping)),
    next: runs[0] ?? null,
  }
}

/** A sum is as uncertain as its most uncertain part. */
export const sumOf = (counts: readonly Count[]): Count => ({
  n: counts.reduce((sum, { n }) => sum + n, 0),
  ...(counts.some(({ more }) => more) && { more: true as const }),
  ...(counts.some(({ about }) => about) && { about: true as const }),
})

/** The same in one line. */
export function quietText({ perMinute, due, held, sleeping, next }: Quiet, now: Date): string {
  const speed = perMinute === null ? 'throughput unknown' : `${perMinute.toLocaleString('en-US')} steps per minute`
  const run = next === null ? '' : `; next: schedule ${next.schedule} in ${formatMs(next.at.getTime() - now.getTime())}`
  return `${speed}; ${countText(due)} due, ${held} held, ${countText(sleeping)} asleep${run}`
}
