import type { Document } from 'mongodb'
import { isDue, KNOWN_FOR_MS, lockTimeoutAt, type Terms, termsOf } from '../../../src/lock/index.js'
import { COMMANDS } from '../commands.js'
import { matches } from '../evaluator/filter.js'
import type { Machine, Move } from '../explore.js'

/** Half of what may be gone by, so that a tick tells apart what the rules of point 10 tell apart. */
const TICK_MS = KNOWN_FOR_MS / 2
const NOW = new Date(Date.UTC(2026, 0, 1))
export const SHORT_MS = TICK_MS
export const LONG_MS = 4 * TICK_MS
/** Ticks after which nothing of a change, and no lease, is left. */
const OLD = 12

/** The world as of now; times are ticks before it. */
export interface TermsWorld {
  readonly record: { readonly lockTimeout: number; readonly was?: number; readonly since?: number }
  /** What each of them has read, and when. */
  readonly holder: Reading
  readonly claimer: Reading
  /** `lockedAt` as the server has it; null: free. */
  readonly lockedAt: number | null
  /** What the holder believes. */
  readonly lease: { readonly from: number; readonly lastsMs: number } | null
}

interface Reading {
  readonly at: number
  readonly dueMs: number
  readonly leaseMs: number
}

/** What can be taken away of point 10. */
export interface TermsProtections {
  readonly lockTimeoutAt: typeof lockTimeoutAt
  readonly claimsHaveAge: boolean
  readonly renewalsHaveAge: boolean
}

export const TERMS_PROTECTED: TermsProtections = {
  lockTimeoutAt,
  claimsHaveAge: true,
  renewalsHaveAge: true,
}

const ticksAgo = (ticks: number): Date => new Date(NOW.getTime() - ticks * TICK_MS)

/**
 * A holder and a claimer that read the lockTimeout in force at different moments, go by it for as long as the protocol lets them, and
 * may stand still at any time; and a change of it, that takes up to a tick to be executed.
 */
export class TermsMachine implements Machine<TermsWorld> {
  readonly initial: readonly TermsWorld[]
  private readonly known = new Map<string, boolean>()

  constructor(
    private readonly protections: TermsProtections,
    private readonly change: { readonly from: number; readonly to: number },
  ) {
    const reading = { at: 0, dueMs: change.from, leaseMs: change.from }
    const record = { lockTimeout: change.from }
    this.initial = [{ record, holder: reading, claimer: reading, lockedAt: null, lease: null }]
  }

  keyOf(world: TermsWorld): string {
    const { record, holder, claimer, lockedAt, lease } = world
    const all = [record.since, holder.at, holder.dueMs, holder.leaseMs, claimer.at, claimer.dueMs, claimer.leaseMs]
    return [...all, lockedAt, lease?.from, lease?.lastsMs].join()
  }

  *moves(world: TermsWorld): Generator<Move<TermsWorld>> {
    yield { action: 'tick', to: aTickLater(world) }
    const { from, to } = this.change
    if (world.record.since === undefined) {
      for (const since of [0, 1]) {
        yield {
          action: `change, begun ${since} before`,
          to: { ...world, record: { lockTimeout: to, was: from, since } },
        }
      }
    }
    yield { action: 'holder reads', to: { ...world, holder: this.read(world) } }
    yield { action: 'claimer reads', to: { ...world, claimer: this.read(world) } }
    if (world.lockedAt === null && this.isDueBy(world.holder, null)) {
      yield { action: 'holder claims', to: leased(world) }
    }
    if (world.lease && this.mayRenew(world.holder)) yield { action: 'holder renews', to: leased(world) }
    if (world.lockedAt !== null && this.isDueBy(world.claimer, world.lockedAt)) {
      const { lease } = world
      const broken = lease && lease.from * TICK_MS < lease.lastsMs ? ['I6'] : []
      yield { action: 'claimer claims', to: { ...world, lockedAt: null, lease: null }, broken }
    }
  }

  private read({ record }: TermsWorld): Reading {
    const { lockTimeout, was, since } = record
    const changed = was !== undefined &&
      since !== undefined && { lockTimeoutWas: was, lockTimeoutSince: ticksAgo(since) }
    const { dueMs, leaseMs } = this.protections.lockTimeoutAt({ lockTimeout, ...changed }, NOW)!
    return { at: 0, dueMs, leaseMs }
  }

  private isDueBy(reading: Reading, lockedAt: number | null): boolean {
    return this.once(`due ${reading.at} ${reading.dueMs} ${lockedAt}`, () => {
      const document = { lockedAt: lockedAt === null ? new Date(0) : ticksAgo(lockedAt) }
      return matches({ $expr: isDue(termsBy(reading, this.protections.claimsHaveAge)) }, document, NOW)
    })
  }

  private mayRenew(reading: Reading): boolean {
    return this.once(`renew ${reading.at} ${reading.dueMs}`, () => {
      const { filter } = COMMANDS.renew(termsBy(reading, this.protections.renewalsHaveAge), 'a', 1)
      const document: Document = { _id: 'x', lockedBy: 'a#1.1' }
      return matches(filter, document, NOW)
    })
  }

  private once(key: string, tell: () => boolean): boolean {
    const known = this.known.get(key) ?? tell()
    this.known.set(key, known)
    return known
  }
}

function termsBy({ at, dueMs, leaseMs }: Reading, withAge: boolean): Terms {
  const validUntil = new Date(ticksAgo(at).getTime() + KNOWN_FOR_MS)
  return termsOf(dueMs, { leaseMs, ...(withAge && { validUntil }) })
}

const leased = (world: TermsWorld): TermsWorld => ({
  ...world,
  lockedAt: 0,
  lease: { from: 0, lastsMs: world.holder.leaseMs },
})

function aTickLater({ record, holder, claimer, lockedAt, lease }: TermsWorld): TermsWorld {
  const older = (ticks: number) => Math.min(ticks + 1, OLD)
  const aged = (reading: Reading) => ({ ...reading, at: Math.min(reading.at + 1, 3) })
  return {
    record: record.since === undefined ? record : { ...record, since: older(record.since) },
    holder: aged(holder),
    claimer: aged(claimer),
    lockedAt: lockedAt === null ? null : older(lockedAt),
    lease: lease && { ...lease, from: older(lease.from) },
  }
}
