import type { LockRecord } from '../lock-provider.js'

/** More than half. */
export const majorityOf = (servers: number): number => Math.floor(servers / 2) + 1

/** The different tokens, the most frequent first. */
export function tokensOf(tokens: readonly (string | undefined)[]): { token: string; count: number }[] {
  const counts = new Map<string, number>()
  for (const token of tokens) if (token !== undefined) counts.set(token, (counts.get(token) ?? 0) + 1)
  return [...counts].map(([token, count]) => ({ token, count })).sort((a, b) => b.count - a.count)
}

/**
 * The lock that a majority of servers has; undefined if there is none. Servers that gave no answer count as having it: a lock is reported as gone only when it
 * surely is.
 */
export function agreedRecord(
  records: readonly (LockRecord | undefined)[],
  majority: number,
  unknown: number,
): LockRecord | undefined {
  const [most] = tokensOf(records.map((record) => record?.lockedBy))
  if (!most || most.count + unknown < majority) return undefined
  const same = records.filter((record) => record !== undefined).filter(({ lockedBy }) => lockedBy === most.token)
  const times = (pick: (record: LockRecord) => Date | undefined) => same.flatMap((one) => pick(one)?.getTime() ?? [])
  const lockedAt = times((one) => one.lockedAt)
  const ends = times((one) => one.lockUntil).sort((a, b) => b - a)
  const end = ends[Math.min(majority, ends.length) - 1]
  return {
    ...same[0]!,
    lockedAt: lockedAt.length > 0 ? new Date(Math.min(...lockedAt)) : undefined,
    lockUntil: end === undefined ? undefined : new Date(end),
    fence: Math.max(...same.map(({ fence }) => fence ?? 0)) || undefined,
  }
}
