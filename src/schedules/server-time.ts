/**
 * The server's time when this document was claimed: a claim sets `lockedAt` to it. It may lie a little back (a queue, a
 * round trip), never ahead, unless the step follows another of the same lease.
 */
export function serverTime(claimed: object): Date {
  const { lockedAt } = claimed as { lockedAt?: unknown }
  if (lockedAt instanceof Date) return lockedAt
  throw new Error('expected a claimed document, it has no lockedAt')
}
