/** Returns numbers from 0 (inclusive) to 1, the same for the same seed (mulberry32). */
export type Random = () => number

export function randomOf(seed: number): Random {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** One of them; undefined if there are none. */
export const oneOf = <T>(random: Random, among: readonly T[]): T | undefined =>
  among[Math.floor(random() * among.length)]

/** A whole number, both ends inclusive. */
export const wholeBetween = (random: Random, least: number, most: number) =>
  least + Math.floor(random() * (most - least + 1))
