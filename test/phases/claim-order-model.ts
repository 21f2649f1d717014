/*
 * Which due documents a claim takes, as the pages on priorities, limits and pauses and the comment of CrashIsolation say it: what may be held together,
 * who comes before whom, and how many that are lower in rank may come before others all the same. Nothing here knows how the product does it.
 */

export const KINDS = ['woken', 'released', 'fresh'] as const
export const RANKS = ['odd', 'low', 'normal', 'high', 'urgent'] as const
/** The least part of a claim, in the order in which what is left goes to the last one that has documents. */
const PART_OF_RANK = { odd: 1 / 16, low: 1 / 16, normal: 1 / 8, high: 1 / 4, urgent: 1 / 2 }
const PART_OF_KIND = { woken: 1 / 4, released: 1 / 2, fresh: 0 }

export interface Due {
  readonly _id: string
  readonly rank: (typeof RANKS)[number]
  readonly kind: (typeof KINDS)[number]
  /** Smaller: due for longer. */
  readonly age: number
  readonly tenant: string
  /** Claims so far without a recorded outcome. */
  readonly claims: number
  readonly isPaused: boolean
  /** Another replica's, and not for long enough to be everybody's. */
  readonly isOthers: boolean
}

export interface World {
  readonly places: number
  readonly due: readonly Due[]
  /** How many documents of one tenant may be held at once. Infinity: any number. */
  readonly each: number
  /** Tenants that are known to have no slot, or are paused. */
  readonly full: ReadonlySet<string>
  readonly maxClaims: number
  readonly concurrency: number
  /** Of what is held already: claims without a recorded outcome, this one included. */
  readonly held: readonly number[]
  readonly hasRanks: boolean
  /** The part of the places that goes by turns and not by rank. 0: the claim sees all that is due. */
  readonly byTurns: number
  readonly hasTurns: boolean
}

/** How many suspects may be held while this one is. Undefined: nobody suspects it. */
function allowed({ maxClaims, concurrency }: World, claims: number): number | undefined {
  if (claims < 2 || claims > maxClaims) return undefined
  return claims === maxClaims ? 0 : Math.max(1, Math.floor(concurrency / 4 ** (claims - 2)))
}

/** Whether one claim may take these documents together. */
export function mayHold(world: World, taken: readonly Due[]): boolean {
  if (taken.length > world.places || new Set(taken).size < taken.length) return false
  if (taken.some((due) => due.isPaused || due.isOthers || world.full.has(due.tenant))) return false
  const ofTenant = Map.groupBy(taken, ({ tenant }) => tenant)
  if ([...ofTenant.values()].some((own) => own.length > world.each)) return false
  const own = taken.flatMap(({ claims }) => allowed(world, claims + 1) ?? [])
  if (own.length === 0) return true
  if (own.includes(0)) return taken.length === 1 && world.held.length === 0
  const before = world.held.flatMap((claims) => allowed(world, claims) ?? [])
  return before.length + own.length <= Math.min(...before, ...own)
}

/** What contradicts the documented order in what a claim has taken. */
export function violations(world: World, taken: readonly Due[]): string[] {
  const has = new Set(taken)
  const left = world.due.filter((due) => !has.has(due))
  if (!mayHold(world, taken)) return ['may not be held together']
  const wrong: string[] = []
  if (taken.length < world.places)
    for (const due of left) if (mayHold(world, [...taken, due])) wrong.push(`${due._id} is left for no reason`)
  const overtakes = (one: Due, other: Due) => mayHold(world, [...taken.filter((due) => due !== one), other])
  // Of what is alike in all else the oldest comes first.
  for (const one of taken)
    for (const other of left)
      if (isAlike(world, one, other) && other.age < one.age && overtakes(one, other))
        wrong.push(`${one._id} came before ${other._id}, which is older`)
  if (world.hasTurns)
    for (const [one, other] of unevenTurns(world, taken, left))
      if (overtakes(one, other)) wrong.push(`${one._id} came before ${other._id}, whose turn it was`)
  /** At most their part of the places, rounded up, comes before any that is higher and could have had the place. */
  const atMost = (what: string, those: readonly Due[], most: number, isHigher: (one: Due, other: Due) => boolean) => {
    const early = those.filter((one) => left.some((other) => isHigher(one, other) && overtakes(one, other)))
    if (early.length > most) wrong.push(`${early.length} ${what} came before higher ones; expected at most ${most}`)
  }
  const turns = Math.ceil(world.places * world.byTurns)
  if (world.hasRanks)
    for (const [i, rank] of RANKS.entries()) {
      const part = PART_OF_RANK[rank] * (1 - world.byTurns)
      const those = taken.filter((due) => due.rank === rank)
      const isHigher = (_: Due, other: Due) => RANKS.indexOf(other.rank) > i
      atMost(rank, those, turns + Math.ceil(world.places * part), isHigher)
    }
  if (world.byTurns === 0)
    for (const [i, kind] of KINDS.entries())
      for (const rank of RANKS) {
        const inRank = taken.filter((due) => !world.hasRanks || due.rank === rank)
        const those = inRank.filter((due) => due.kind === kind)
        const isHigher = (one: Due, other: Due) =>
          (!world.hasRanks || one.rank === other.rank) && KINDS.indexOf(other.kind) > i
        atMost(`${rank} ${kind}`, those, Math.ceil(inRank.length * PART_OF_KIND[kind]), isHigher)
      }
  return wrong
}

function isAlike(world: World, one: Due, other: Due): boolean {
  // Its value's turn comes for the oldest, of whichever rank and kind.
  if (world.byTurns > 0) return false
  if (world.hasTurns && one.tenant !== other.tenant) return false
  return one.kind === other.kind && (!world.hasRanks || one.rank === other.rank)
}

/** Pairs of alike documents of two tenants where one has had two turns more than the other. */
function unevenTurns(world: World, taken: readonly Due[], left: readonly Due[]): [Due, Due][] {
  if (world.byTurns > 0) return []
  const group = ({ rank, kind }: Due) => (world.hasRanks ? `${rank} ${kind}` : kind)
  const turnsOf = (due: Due) => taken.filter((one) => one.tenant === due.tenant && group(one) === group(due)).length
  return taken.flatMap((one) =>
    left
      .filter((other) => other.tenant !== one.tenant && group(other) === group(one))
      .filter((other) => turnsOf(one) > turnsOf(other) + 1)
      .map((other): [Due, Due] => [one, other]),
  )
}
