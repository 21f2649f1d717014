import type { Collection, Document, Filter } from 'mongodb'
import type { Clock } from '../../time/index.js'
import { AS_IT_STANDS } from '../documents/read.js'
import { idKey } from '../documents/values.js'
import { perUpdate, updateNamed } from '../documents/write.js'
import { ID_INDEX, inProgress, isValidYet, type Terms, withoutClaim } from '../terms/terms.js'

/** A fence that `$toLong` accepts: it fails for NaN and values out of range, and with it the whole command. */
const isSane = {
  $and: [{ $isNumber: '$fence' }, { $gte: ['$fence', 0] }, { $lt: ['$fence', Number.MAX_SAFE_INTEGER] }],
}

/** The fence of a document that was read; 0: it has none, or one that the next claim restarts. */
export const fenceOf = ({ fence }: Document): number =>
  typeof fence === 'number' && fence >= 0 && fence < Number.MAX_SAFE_INTEGER ? fence : 0

/** Matches a document with this fence, as {@link fenceOf} reads it. */
export const hasFence = (fence: number): Filter<Document> => ({
  $expr: { $eq: [{ $cond: [isSane, '$fence', 0] }, fence] },
})

const higher = { $add: [{ $toLong: '$fence' }, 1] }

/** The fence of a first claim, of a document that has no fence yet. */
export const firstFence: Document = { $multiply: [{ $toLong: '$$NOW' }, 1000] }

/**
 * The fence of a claim: the larger of the server's milliseconds x 1000 and the old fence + 1. So it also grows when the document was replaced, or
 * deleted and recreated (but not within the same millisecond, nor when the server's clock steps back after a replacement: docs/caveats.md). A
 * fence of another type or out of range is restarted from the clock. Always stored as a long that is a safe integer in JavaScript.
 *
 * The factor leaves room for 1,000 steps in a millisecond: without it, two steps in one millisecond and a replacement in the next would make the
 * fence go backwards.
 */
export const claimFence: Document = { $cond: [isSane, { $max: [firstFence, higher] }, firstFence] }

/**
 * The fence of the next step under the same lease: the old one + 1. The holder knows it without reading it back; the
 * factor of {@link claimFence} keeps it below the fence of any later claim (docs/decisions/0003).
 */
export const stepFence: Document = { $cond: [isSane, higher, firstFence] }

/** The name, the claim and the step in a token, for people: `api-x2k~5f3a9c#1842.3`. */
export function parseToken(token: string): { replica: string; name: string; claim: number; step: number } | undefined {
  const match = /^((.*)~[^~#]*)#(\d+)\.(\d+)$/.exec(token)
  if (!match) return undefined
  return { replica: match[1]!, name: match[2]!, claim: Number(match[3]), step: Number(match[4]) }
}

/** Matches any step's token of a claim. '/' is the character after '.': the range holds `replica#claim.<any step>` and nothing else. */
export const underClaim = (replica: string, claim: number): Document => ({
  lockedBy: { $gte: `${replica}#${claim}.`, $lt: `${replica}#${claim}/` },
})

/** Matches any token of the claim that a document was read under. A token in no known form matches only itself; no token matches nothing. */
export function underClaimOf(lockedBy: string | undefined): Document {
  const token = lockedBy === undefined ? undefined : parseToken(lockedBy)
  if (token) return underClaim(token.replica, token.claim)
  return { lockedBy: lockedBy ?? { $in: [] } }
}

/**
 * A replica that claims, with the number of its claims so far. All of its lifecycles share one: they share its identity, and may
 * share a collection, so they must not give out the same token twice.
 */
export class Claimant {
  private claims = 0

  constructor(readonly identity: string) {}

  nextClaim(): ClaimTokens {
    this.claims += 1
    return new ClaimTokens(this.identity, this.claims)
  }
}

/**
 * One claim by a replica, of one document or of a batch. Invariant: it never gives out the same value twice, and no other
 * claim of any replica gives out one of its values. So a token names one step, and a write that arrives late, twice, or
 * after its own resend matches nothing.
 */
export class ClaimTokens {
  private step = 0
  readonly token: string

  constructor(
    readonly replica: string,
    readonly number: number,
  ) {
    this.token = this.nextToken()
  }

  nextToken(): string {
    this.step += 1
    return `${this.replica}#${this.number}.${this.step}`
  }
}

/*
 * Legacy writers lease a document by setting `lockedAt` to the present and know nothing of `lockedBy`. With them
 * (`legacyWriters: true`) three more conditions hold (model, hole 11):
 *
 * 1. A document without `lockedBy` sleeps only if `progress.resumeAt` = `lockedAt` + lockTimeout, or if it is parked; any
 *    other that isn't due is leased by a legacy writer, and no rule touches it. Such a writer never makes the two equal: it
 *    takes a document only after `resumeAt`, and writes a later time.
 * 2. Each of our leases keeps in `progress.lockedAt` the value it gave `lockedAt`, and whatever is written or judged under a
 *    token requires that the two are still equal: a legacy writer that takes over an expired lease leaves our `lockedBy` in place.
 * 3. So a token that is still there doesn't prove that its lease is.
 */

/** The terms of a lifecycle that say how its leases are marked. */
export type LeaseMarking = Pick<Terms, 'legacyWriters' | 'progress'>

/** The fields that our leases add to `progress`, so that later writes can see that no writer has moved `lockedAt`. */
export const leaseMark = (terms: LeaseMarking, lockedAt: unknown): Document => (terms.legacyWriters ? { lockedAt } : {})

/** The condition of a write or a read under a token, besides the token. */
export const leaseUnmoved = (terms: LeaseMarking): Document =>
  terms.legacyWriters ? { $expr: { $eq: ['$lockedAt', inProgress(terms, 'lockedAt')] } } : {}

/** The same for a document that was read. */
export function isLeaseUnmoved(terms: LeaseMarking, document: Document): boolean {
  if (!terms.legacyWriters) return true
  const [lockedAt, mark] = [document['lockedAt'], document[terms.progress]?.lockedAt]
  return lockedAt instanceof Date && mark instanceof Date && lockedAt.getTime() === mark.getTime()
}

/**
 * A lease as its holder judges it: of a document, of a limit's slots, of an outbox. It ages by the holder's monotonic clock, from before the command
 * that took or last renewed it was sent, so it is never over by the server's clock while it isn't over here. It is to be renewed after a third of it;
 * past two thirds it is in danger, and what runs under it has to stop. That of an outbox is never renewed: it outlasts the timeout of its call.
 */
export class LeaseAge {
  constructor(
    private readonly clock: Pick<Clock, 'monotonicMs'>,
    private sentAtMs = Number.NEGATIVE_INFINITY,
    /** The time that it lasts without a renewal: the value in force when it was taken or last renewed. */
    public lastsMs = Number.POSITIVE_INFINITY,
  ) {}

  /** Milliseconds since the command that took it, or the last successful renewal, was sent. */
  ageMs(): number {
    return this.clock.monotonicMs() - this.sentAtMs
  }

  /** The least number of milliseconds that it still lasts; 0 once it may have expired. */
  leftMs(): number {
    return Math.max(0, this.lastsMs - this.ageMs())
  }

  /** True if it is to be renewed. @param mostMs the time that others may take it to last by now @param soonMs or will be within this time */
  isAging(mostMs = this.lastsMs, soonMs = 0): boolean {
    return this.ageMs() + soonMs >= Math.min(mostMs, this.lastsMs) / 3
  }

  /** True if it wasn't renewed in time. */
  isInDanger(mostMs = this.lastsMs): boolean {
    return this.ageMs() > (Math.min(mostMs, this.lastsMs) * 2) / 3
  }

  /** A renewal sent at `sentAtMs` (monotonic) succeeded: it lasts `lastsMs` from then on. */
  renewed(sentAtMs: number, lastsMs = this.lastsMs): void {
    if (sentAtMs < this.sentAtMs) return
    this.sentAtMs = sentAtMs
    this.lastsMs = lastsMs
  }
}

/**
 * A replica's lease on one document: the time-limited right to work on it.
 *
 * Invariant: while `leftMs() > 0`, no other replica holds the document by the server's clock (unless its owner replaced it). `again` and checkpoints
 * leave `lockedAt` alone and so don't restart it.
 */
export class Lease extends LeaseAge {
  /** The key of its document in a Map: made once, because a document is looked up several times in each step. */
  readonly key: string
  private ended = false

  constructor(
    readonly id: unknown,
    readonly claim: ClaimTokens,
    public token: string,
    public fence: number,
    claimSentAtMs: number,
    lastsMs: number,
    clock: Clock,
  ) {
    super(clock, claimSentAtMs, lastsMs)
    this.key = idKey(id)
  }

  /** 0 also once it was ended. */
  override leftMs(): number {
    return this.ended ? 0 : super.leftMs()
  }

  /** Passes the lease to its next step: a new token, and the fence that the write has set. */
  passTo(token: string, fence: number): void {
    this.token = token
    this.fence = fence
  }

  /** Ends the lease, once recorded, lost or given up: this replica has no right to the document any more. */
  end(): void {
    this.ended = true
  }
}

/* The two writes under a lease that leave its token alone, because they end no step: they may come at any time. */

/**
 * The update of a renewal. `lockedAt` = the later of its stored value and now: a renewal that waited in the server (its `$$NOW` is
 * fixed at its start) never overwrites a newer time with an older one.
 */
export function renewUpdate(terms: Terms): Document[] {
  const lockedAt = { $max: ['$lockedAt', '$$NOW'] }
  if (!terms.legacyWriters) return [{ $set: { lockedAt } }]
  return [{ $set: { lockedAt, [`${terms.progress}.lockedAt`]: lockedAt } }]
}

/**
 * Renews leases with one write, on its own connection, so that a full pool never costs a lease.
 *
 * Invariant: it names the documents that this process works on and the claim under which it holds each, never "everything
 * of mine": a claim whose reply was lost expires. It accepts any step's token of that claim, because a chain of steps
 * changes the token while the renewal is on its way. And it renews nothing once the terms that say how long a lease lasts
 * have gone stale: a renewal that was delayed on its way leaves the leases as they are.
 */
export class Renewals {
  constructor(
    private readonly collection: Collection,
    private readonly terms: () => Terms,
    private readonly clock: Clock,
  ) {}

  /**
   * Renews all that are still this replica's; returns those that aren't, and ends them. If the command fails, or comes when
   * the terms have gone stale, nothing is renewed and the leases go on ageing.
   */
  async renew(leases: readonly Lease[]): Promise<Lease[]> {
    if (leases.length === 0) return []
    const terms = this.terms()
    const sentAtMs = this.clock.monotonicMs()
    const ours = (some: readonly Lease[]) => {
      const [first, ...more] = claimsOf(some)
      return { ...(more.length > 0 ? { $or: [first, ...more] } : first), ...leaseUnmoved(terms) }
    }
    const valid = isValidYet(terms)
    const inTime = valid && { $and: [{ $expr: valid }] }
    const updates = perUpdate(this.collection, leases).map((some) => {
      return { ids: some.map(({ id }) => id), filter: { ...ours(some), ...inTime }, update: renewUpdate(terms) }
    })
    const { matchedCount } = await updateNamed(this.collection, updates)
    const lost = matchedCount === leases.length ? [] : await this.notIn(ours(leases), leases)
    // All share one time limit: if nothing matched but some are still ours, it came too late for all.
    const cameLate = matchedCount === 0 && lost.length < leases.length
    const isLost = new Set(lost)
    // A claim's tokens never come back, so a lost lease stays lost: its step must not begin, or go on trusting it.
    for (const lease of leases) {
      if (isLost.has(lease)) lease.end()
      else if (!cameLate) lease.renewed(sentAtMs, terms.leaseMs)
    }
    return lost
  }

  private async notIn(ours: Document, leases: readonly Lease[]): Promise<Lease[]> {
    const held = await this.collection.find(ours, { projection: { _id: 1 }, hint: ID_INDEX, ...AS_IT_STANDS }).toArray()
    const heldIds = new Set(held.map((document) => idKey(document['_id'])))
    return leases.filter((lease) => !heldIds.has(lease.key))
  }
}

/** The condition on the documents of each claim. */
const claimsOf = (leases: readonly Lease[]): Document[] =>
  [...Map.groupBy(leases, ({ claim }) => claim.number)].map(([claim, members]) => ({
    _id: { $in: members.map((lease) => lease.id) },
    ...underClaim(members[0]!.claim.replica, claim),
  }))

/**
 * Uncounts the claims whose steps were still running when their replica was shut down cleanly: that is no sign of poison. Their
 * leases stay and run out. Each write requires the lease's token.
 */
export async function uncountClaims(collection: Collection, terms: Terms, leases: readonly Lease[]): Promise<void> {
  if (leases.length === 0) return
  const operations = leases.map((lease) => ({
    updateOne: {
      filter: { _id: lease.id as never, lockedBy: lease.token, ...leaseUnmoved(terms) },
      update: [{ $set: { [`${terms.progress}.claims`]: withoutClaim(terms) } }],
      hint: ID_INDEX,
    },
  }))
  await collection.bulkWrite(operations, { ordered: false })
}
