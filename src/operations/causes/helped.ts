import type { CauseRow, Helped } from './row.js'

/** An operation that has ended, and the cause that it was begun for. */
export interface EndedOperation {
  readonly _id: string
  readonly action: string
  readonly lifecycle: string
  readonly by: string
  /** The id of a row, or the cause that the documents recorded. */
  readonly cause: string
  readonly begunAt: Date
  readonly endedAt: Date
  readonly ended: 'Done' | 'Aborted'
  readonly done: number
}

const A_DAY_MS = 86_400_000
/** The most operations of one cause: the newest. */
const MOST_HELPED = 3

/** Earlier operations on a cause, the newest first, and what became of the cause after each. */
export function helpedBefore(
  { id, cause, lifecycle, firstSeen }: Pick<CauseRow, 'id' | 'cause' | 'lifecycle' | 'firstSeen'>,
  operations: readonly EndedOperation[],
  now: Date,
): Helped[] {
  const own = operations
    .filter((one) => one.cause === id || (one.cause === cause && one.lifecycle === lifecycle))
    .sort((a, b) => b.endedAt.getTime() - a.endedAt.getTime())
  return own.slice(0, MOST_HELPED).map(({ _id, action, by, endedAt, ended, done }, i): Helped => {
    // An operation is begun because the cause is there: the next one shows that it had come back, or had stayed.
    const next = i === 0 ? undefined : own[i - 1]!.begunAt
    const end = endedAt.getTime()
    return { operation: _id, action, by, endedAt, ended, done, cause: fate(end, firstSeen, next, now) }
  })
}

function fate(endedMs: number, firstSeen: Date | null, next: Date | undefined, now: Date): Helped['cause'] {
  if (firstSeen !== null && firstSeen.getTime() <= endedMs) return 'stayed'
  // It is there again now: since when, `firstSeen` says, unless an operation was begun for it before.
  const seen = next ?? firstSeen
  if (seen === null) return now.getTime() - endedMs <= A_DAY_MS ? 'back' : 'unknown'
  return seen.getTime() - endedMs <= A_DAY_MS ? 'back' : 'gone'
}
