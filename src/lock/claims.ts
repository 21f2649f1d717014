import type { Collection, Document, Filter, FindOneAndUpdateOptions } from 'mongodb'
import type { Clock } from '../time/index.js'
import { type CandidateRequest, type Candidates, findCandidateDocuments } from './candidates.js'
import { onClaimIndex } from './claim-index.js'
import { readBackClaim } from './claim-read-back.js'
import { claimUpdate } from './claim-update.js'
import { CLAIM_INDEX, ID_INDEX, PARKED_AT } from './constants.js'
import { idKey } from './id-key.js'
import { Lease } from './lease.js'
import { MissedIds } from './missed-ids.js'
import { type OddField, oddFields } from './odd-fields.js'
import type { ServerClock } from './server-clock.js'
import { Share, type Standing } from './share.js'
import { SkipList } from './skip-list.js'
import { hasOurShape, isDue, onlyIn, type Terms } from './terms.js'
import { Claim } from './token.js'
import { idsOf, type Refused, writeAround } from './write-around.js'
import { isDefiniteRefusal } from './write-error.js'

/** A document that this replica holds, as it was when claimed. */
export interface Claimed {
  readonly document: Document
  readonly lease: Lease
}

export interface ClaimResult {
  readonly claimed: Claimed[]
  /** How many candidates were tried for. Fewer than the limit: nothing more is due. */
  readonly candidates: number
  /** Candidates that somebody else got, or that were no longer due. */
  readonly lost: number
  /** Due documents that were left to the replicas to which they fall. */
  readonly left: number
  /** After so long those that still lie there are anybody's. */
  readonly againInMs: number
  /** Whether there may be more due documents than the look for candidates has seen. */
  readonly more: boolean
  /** `_id`s of documents of a broken shape: they were put aside (lockedAt 9999-12-31), everything else of them stays. */
  readonly broken: unknown[]
  /** Documents that refuse a claim for their own sake: left alone for a while by this replica, nothing of them changed. */
  readonly refused: Refused[]
  /** Documents, claimed or put aside, of which a field of Phaselock's had another type. */
  readonly odd: { readonly id: unknown; readonly fields: readonly OddField[] }[]
}

export interface ClaimsOptions {
  collection: Collection
  /** The terms in force; asked at each claim, as lockTimeout may change. */
  terms: () => Terms
  replica: string
  clock: Clock
  serverClock: ServerClock
  /** Documents to leave alone; this adds those that refuse a claim. Default: a list of its own. */
  skips?: SkipList | undefined
  /** What is read of a document that was claimed. Default: all of it. */
  projection?: Document | undefined
  /** Server time limit of a claim's commands. */
  maxTimeMS?: number | undefined
  /** Told once for each failed command of a claim that is then read back, so that an outage can be logged with a bound. */
  onRetry?: ((error: unknown) => void) | undefined
  /** Whether nothing is to be claimed any more: a claim that is being read back is then left to expire. */
  isOver?: (() => boolean) | undefined
  random?: (() => number) | undefined
  /** The live replicas. Default: this one. */
  standing?: (() => Standing) | undefined
}

/**
 * Claims of this process so far: lifecycles of one replica share its identity, and may share a collection, so they must not
 * give out the same token.
 */
let claimsSoFar = 0

const NOTHING: ClaimResult = {
  claimed: [],
  candidates: 0,
  lost: 0,
  left: 0,
  againInMs: 0,
  more: false,
  broken: [],
  refused: [],
  odd: [],
}

const UNMATCHED: OddField = { field: '_id', found: 'an _id that JavaScript reads as another', isMended: false }

/** Of the documents that refused before, so many are tried in one claim, each alone. */
const MOST_SUSPECTS = 5

/** What a claim has come to so far. */
interface Taken extends Pick<ClaimResult, 'claimed' | 'broken' | 'refused'> {
  readonly untried: unknown[]
}

/**
 * Takes leases on due documents of one collection.
 *
 * Invariants: a document is claimed only while due by the server's clock, judged inside the update itself; a claim's token
 * is used by no other claim; a lease's local age counts from before the claim was sent. After an error whose outcome is
 * unknown it is read by its token what was won. What isn't known then is not used and expires by itself: renewals name
 * documents and tokens that this process knows.
 */
export class Claims {
  private readonly share: Share
  private readonly contended = new Set<string>()
  private readonly crowded = new Set<string>()
  private readonly skips: SkipList
  private readonly missed: MissedIds

  constructor(private readonly options: ClaimsOptions) {
    this.skips = options.skips ?? new SkipList(options.clock)
    this.missed = new MissedIds(options.collection)
    this.share = new Share(options.standing ?? alone(options.replica), options.clock)
  }

  /** The oldest due document of a phase in one `findOneAndUpdate`; nothing claimed: nothing due, or everybody else's. */
  async claimOne(phase: string): Promise<ClaimResult> {
    const terms = this.options.terms()
    const bound = this.options.serverClock.dueBound(terms.lockTimeoutMs)
    const filter: Filter<Document> = { phase, $expr: isDue(terms), ...onlyIn(terms, phase) }
    if (bound) filter['lockedAt'] = { $not: { $gte: bound } }
    const skipped = this.skips.ids()
    if (skipped.length > 0) filter['_id'] = { $nin: skipped as never[] }
    try {
      return await onClaimIndex((hint) =>
        this.findOneAndClaim(terms, filter, { sort: { lockedAt: 1, updatedAt: 1 }, hint }),
      )
    } catch (error) {
      if (!isDefiniteRefusal(error)) throw error
      // Which document it was isn't told: read what stands first.
      const first = await this.options.collection
        .find(filter, { projection: { _id: 1 }, sort: { lockedAt: 1, updatedAt: 1 }, hint: CLAIM_INDEX, limit: 1 })
        .toArray()
      const refused = first.map((document) => ({ id: document['_id'] as unknown, error }))
      for (const { id } of refused) this.skips.add(id)
      return { ...NOTHING, candidates: refused.length, refused }
    }
  }

  /**
   * Up to `limit` due documents of a phase in a constant number of round trips: find candidates, one conditional update,
   * read those won by the token. A document that refuses a claim for its own sake (its size, the owner's validator) costs
   * a few more, and none of the others their claim.
   */
  async claimBatch(phase: string, limit: number): Promise<ClaimResult> {
    const terms = this.options.terms()
    const dueBound = this.options.serverClock.dueBound(terms.lockTimeoutMs)
    if (!dueBound) return this.claimOne(phase)
    const {
      documents: candidates,
      parted: { left, againInMs, late },
      more,
    } = await this.candidates(terms, {
      phase,
      limit,
      dueBound,
      random: this.options.random ?? Math.random,
      skipped: this.skips.ids(),
    })
    if (candidates.length === 0) return { ...NOTHING, left, againInMs, more }
    const ids = candidates.map((document) => document['_id'] as unknown)
    const taken = await this.claimAround(terms, phase, ids)
    for (const { lease } of taken.claimed) this.skips.remove(lease.id)
    const missed = this.missedOf(ids, taken)
    if (ids.length > 1 && missed.length > ids.length * 0.05) this.contended.add(phase)
    else this.contended.delete(phase)
    if (late.size > 0) this.share.tookOver(countIn(late, ids), countIn(late, missed))
    for (const { id } of taken.refused) this.skips.add(id)
    const odd = oddOf(candidates, [...taken.claimed.map(({ lease }) => lease.id), ...taken.broken])
    if (missed.length > 0) {
      const unmatched = await this.missed.putAside(terms, phase, missed).catch((error: unknown) => {
        if (taken.claimed.length === 0) throw error
        return [] // what was won is to be used
      })
      taken.broken.push(...unmatched)
      odd.push(...unmatched.map((id) => ({ id, fields: [UNMATCHED] })))
    }
    const { claimed, broken, refused } = taken
    return { claimed, broken, refused, candidates: ids.length, lost: missed.length, left, againInMs, more, odd }
  }

  /**
   * Whom it doesn't know to share with (a replica of an older version, one that is ticked by hand) a claim only meets by
   * its losses: two that pick alike lose half of their candidates, so after a loss of more than 5 % the next pick is spread.
   */
  private async candidates(terms: Terms, request: CandidateRequest): Promise<Candidates> {
    const { phase } = request
    const found = await findCandidateDocuments(this.options.collection, terms, {
      ...request,
      // What others can't take is not theirs.
      share: terms.only?.phases.includes(phase) ? undefined : this.share,
      spread: this.contended.has(phase) && this.share.of === 1 ? 4 : 1,
      crowded: this.crowded.has(phase),
    })
    if (found.crowded) this.crowded.add(phase)
    else this.crowded.delete(phase)
    return found
  }

  /** All at once, and those that have refused before one by one. */
  private async claimAround(terms: Terms, phase: string, ids: readonly unknown[]): Promise<Taken> {
    const suspects = ids.filter((id) => this.skips.isSuspect(id))
    const others = suspects.length > 0 ? ids.filter((id) => !this.skips.isSuspect(id)) : ids
    const { collection } = this.options
    const taken: Taken = { claimed: [], broken: [], refused: [], untried: [] }
    for (const group of [others, ...suspects.slice(0, MOST_SUSPECTS).map((id) => [id])]) {
      if (group.length === 0) continue
      try {
        const { refused, untried } = await writeAround(
          group,
          (some) => this.claimThese(terms, phase, some, taken),
          (some) => idsOf(collection, { _id: { $in: some as never[] }, phase, $expr: isDue(terms) }, this.limits()),
        )
        taken.refused.push(...refused)
        taken.untried.push(...untried)
      } catch (error) {
        if (taken.claimed.length === 0) throw error
        break // what was won is to be used
      }
    }
    return taken
  }

  /** Candidates that this claim tried for and neither got nor put aside. */
  private missedOf(ids: readonly unknown[], taken: Taken): unknown[] {
    if (taken.claimed.length === ids.length) return []
    const known = new Set([
      ...taken.claimed.map(({ lease }) => idKey(lease.id)),
      ...[...taken.broken, ...taken.untried, ...taken.refused.map(({ id }) => id)].map(idKey),
    ])
    return ids.filter((id) => !known.has(idKey(id)) && !this.skips.isSuspect(id))
  }

  private async claimThese(terms: Terms, phase: string, ids: readonly unknown[], taken: Taken): Promise<void> {
    if (ids.length > 1) return this.updateAndRead(terms, phase, ids, taken)
    const filter = { _id: ids[0] as never, phase, $expr: isDue(terms) }
    const { claimed, broken } = await this.findOneAndClaim(terms, filter, { hint: ID_INDEX }, ids)
    taken.claimed.push(...claimed)
    taken.broken.push(...broken)
  }

  /** @param ids what it may claim, where that is known: after an unknown outcome it is read back which of them it has won */
  private async findOneAndClaim(
    terms: Terms,
    filter: Filter<Document>,
    how: Pick<FindOneAndUpdateOptions, 'sort' | 'hint'>,
    ids?: readonly unknown[],
  ): Promise<ClaimResult> {
    const claim = this.nextClaim(terms)
    const sentAtMs = this.options.clock.monotonicMs()
    const options = { ...how, returnDocument: 'after' as const, ...this.reading(), ...this.limits() }
    let document: Document | null
    try {
      document = await this.options.collection.findOneAndUpdate(filter, claimUpdate(terms, claim.token), options)
    } catch (error) {
      if (!ids || isDefiniteRefusal(error)) throw error
      document = (await this.readBack(ids, claim.token, error))[0]!
    }
    if (!document) return NOTHING
    if (document['lockedBy'] !== claim.token) return { ...NOTHING, candidates: 1, broken: [document['_id']] }
    return { ...NOTHING, claimed: [this.leased(document, claim, sentAtMs, terms)], candidates: 1 }
  }

  /**
   * Claims some at once. A command that is refused has written those before the culprit: they are read by the token like
   * any others, and what is left is tried again by halves.
   */
  private async updateAndRead(terms: Terms, phase: string, ids: readonly unknown[], taken: Taken): Promise<void> {
    const { collection, clock } = this.options
    const claim = this.nextClaim(terms)
    const sentAtMs = clock.monotonicMs()
    let matched = 0
    let refusal: Error | undefined
    let won: Document[]
    try {
      try {
        const result = await collection.updateMany(
          { _id: { $in: ids as never[] }, phase, $expr: isDue(terms) },
          claimUpdate(terms, claim.token),
          { hint: ID_INDEX, ...this.limits() },
        )
        matched = result.matchedCount
      } catch (error) {
        if (!isDefiniteRefusal(error)) throw error
        refusal = error
      }
      won = await collection
        // One reply, room for one more so that it is the last: else two commands more a claim (101 first, then the rest).
        .find(
          { _id: { $in: ids as never[] }, lockedBy: claim.token },
          { hint: ID_INDEX, batchSize: ids.length + 1, ...this.reading(), ...this.limits() },
        )
        .toArray()
    } catch (error) {
      if (isDefiniteRefusal(error)) throw error
      won = await this.readBack(ids, claim.token, error)
    }
    taken.claimed.push(...won.map((document) => this.leased(document, claim, sentAtMs, terms)))
    if (refusal || matched > won.length) {
      const known = new Set(taken.broken.map(idKey))
      taken.broken.push(...(await this.putAside(ids)).filter((id) => !known.has(idKey(id))))
    }
    if (refusal) throw refusal
  }

  /** Which of these a claim has put aside: told by their shape, as they carry no token. */
  private async putAside(ids: readonly unknown[]): Promise<unknown[]> {
    const broken = await this.options.collection
      .find(
        {
          _id: { $in: ids as never[] },
          lockedBy: null,
          lockedAt: PARKED_AT,
          $expr: { $not: [hasOurShape(this.options.terms())] },
        },
        { projection: { _id: 1 }, hint: ID_INDEX },
      )
      .toArray()
    return broken.map((document) => document['_id'])
  }

  /** @throws the error when nothing was won, so that nobody takes an outage for a claim that others won */
  private async readBack(ids: readonly unknown[], token: string, error: unknown): Promise<Document[]> {
    const { collection, projection, onRetry, isOver } = this.options
    const won = await readBackClaim({ collection, ids, token, projection, onRetry, isOver }, error)
    if (won.length === 0) throw error
    return won
  }

  private nextClaim(terms: Terms): Claim {
    claimsSoFar += 1
    return new Claim(terms.protocol, this.options.replica, claimsSoFar)
  }

  private leased(document: Document, claim: Claim, sentAtMs: number, { leaseMs }: Terms): Claimed {
    const lease = new Lease(
      document['_id'],
      claim,
      claim.token,
      Number(document['fence']),
      sentAtMs,
      leaseMs,
      this.options.clock,
    )
    return { document, lease }
  }

  private reading(): { projection?: Document } {
    const { projection } = this.options
    return projection ? { projection } : {}
  }

  private limits(): { maxTimeMS?: number } {
    return this.options.maxTimeMS === undefined ? {} : { maxTimeMS: this.options.maxTimeMS }
  }
}

function alone(replica: string): () => Standing {
  const standing = { self: replica, replicas: [replica] }
  return () => standing
}

const countIn = (keys: ReadonlySet<string>, ids: readonly unknown[]): number =>
  ids.reduce<number>((n, id) => n + (keys.has(idKey(id)) ? 1 : 0), 0)

function oddOf(candidates: readonly Document[], ours: readonly unknown[]): ClaimResult['odd'] {
  const odd = candidates.flatMap((document) => {
    const fields = oddFields(document)
    return fields.length > 0 ? [{ id: document['_id'] as unknown, fields }] : []
  })
  if (odd.length === 0) return odd
  const keys = new Set(ours.map(idKey))
  return odd.filter(({ id }) => keys.has(idKey(id)))
}
