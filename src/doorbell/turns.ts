/** How often something may happen: `burst` times at once, then `perSecond`; at most their sum in any second. */
export interface Pace {
  readonly burst: number
  readonly perSecond: number
}

/** At most 20 in any second; a single one needn't wait, in a storm they are 62 ms apart. */
export const RING_PACE: Pace = { burst: 4, perSecond: 16 }

/** What is left of a pace at a moment; below 0 if turns were promised ahead of time. */
export interface Left {
  readonly turns: number
  readonly atMs: number
}

/**
 * Takes a turn: returns what is then left, and how long to wait for the turn.
 * With RING_PACE from a full start: four turns at once, then one after 62, 125, 187, ... ms.
 */
export function takeTurn(left: Left | undefined, nowMs: number, { burst, perSecond }: Pace): [Left, waitMs: number] {
  const earned = left ? left.turns + ((nowMs - left.atMs) * perSecond) / 1_000 : burst
  const turns = Math.min(burst, earned) - 1
  return [{ turns, atMs: nowMs }, turns >= 0 ? 0 : (-turns * 1_000) / perSecond]
}
