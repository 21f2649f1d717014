import type { Collection, Document, Filter } from 'mongodb'
import type { Clock } from '../time/index.js'
import { type CandidateRequest, type Candidates, findCandidateDocuments } from './candidates.js'
import { onClaimIndex } from './claim-index.js'
import { claimParts } from './claim-parts.js'
import { type Claimed, ClaimWriter, type Taken, type Won } from './claim-writer.js'
import { CLAIM_INDEX } from './constants.js'
import { idKey } from './id-key.js'
import { MissedIds } from './missed-ids.js'
import { type OddField, oddFields } from './odd-fields.js'
import type { ServerClock } from './server-clock.js'
import { Share } from './share.js'
import { SkipList } from './skip-list.js'
import { dueIn, type Terms } from './terms.js'
import type { Refused } from './write-around.js'
import { isDatabaseError, isDefiniteRefusal } from './write-error.js'

export type { Claimed }

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
  /** Which documents fall to this replica. Default: all. */
  share?: Share | undefined
}

/** What has become of documents that were claimed by name. */
export interface NamedResult extends ClaimResult {
  /** How many of those that fall to this replica were not there, not due, or somebody else's. */
  readonly notFound: number
}

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
  private readonly writer: ClaimWriter

  constructor(private readonly options: ClaimsOptions) {
    this.skips = options.skips ?? new SkipList(options.clock)
    this.missed = new MissedIds(options.collection)
    this.writer = new ClaimWriter(options)
    this.share = options.share ?? alone(options)
  }

  /** The oldest due document of a phase in one `findOneAndUpdate`; nothing claimed: nothing due, or everybody else's. */
  async claimOne(phase: string): Promise<ClaimResult> {
    const terms = this.options.terms()
    const bound = this.options.serverClock.dueBound(terms.lockTimeoutMs)
    const filter: Filter<Document> = dueIn(terms, phase)
    if (bound) filter['lockedAt'] = { $not: { $gte: bound } }
    const skipped = this.skips.ids()
    if (skipped.length > 0) filter['_id'] = { $nin: skipped as never[] }
    try {
      return await onClaimIndex(async (hint) => {
        const sort = { lockedAt: 1, updatedAt: 1 } as const
        const { claimed, broken } = await this.writer.claimFirst(terms, filter, { sort, hint })
        return { ...NOTHING, claimed, broken, candidates: claimed.length + broken.length }
      })
    } catch (error) {
      if (!isDefiniteRefusal(error) || !isDatabaseError(error)) throw error
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
   * read those won by the token; more than 500 in two parts at once ({@link claimParts}). A document that refuses a claim for its
   * own sake (its size, the owner's validator) costs a few more, and none of the others their claim.
   * @param won told of each part that was won as soon as it is; the result has all of them
   */
  async claimBatch(phase: string, limit: number, won: Won = () => undefined): Promise<ClaimResult> {
    const terms = this.options.terms()
    const dueBound = this.options.serverClock.dueBound(terms.lockTimeoutMs)
    if (!dueBound) {
      const result = await this.claimOne(phase)
      won(result.claimed)
      return result
    }
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
    const isSuspect = (id: unknown) => this.skips.isSuspect(id)
    const parts = claimParts(candidates, { isSuspect, wasMissed: (id) => this.missed.has(id) })
    const taken = await this.writer.claim(terms, phase, parts, won)
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
   * Those of some documents that fall to this replica and are due, without a look for candidates: one round trip where it is one
   * document. The others are left to the replicas to which they fall, as if a look had seen them.
   */
  async claimNamed(phase: string, ids: readonly unknown[], won: Won = () => undefined): Promise<NamedResult> {
    const terms = this.options.terms()
    const own: unknown[] = []
    const others: string[] = []
    const isShared = this.isShared(terms, phase)
    for (const id of ids) {
      const key = idKey(id)
      if (this.skips.isSuspect(id)) continue
      if (!isShared || this.share.isOwn(key)) own.push(id)
      else others.push(key)
    }
    const againInMs = others.length > 0 ? this.share.leave(phase, others) : 0
    const parts = own.length > 0 ? [{ ids: own, areNew: false }] : []
    const { claimed, broken, refused } = await this.writer.claim(terms, phase, { parts, suspects: [] }, won)
    for (const { id } of refused) this.skips.add(id)
    const candidates = claimed.length + broken.length + refused.length
    const notFound = own.length - candidates
    return { ...NOTHING, claimed, broken, refused, candidates, left: others.length, againInMs, notFound }
  }

  /**
   * Whom it doesn't know to share with (a replica of an older version, one that is ticked by hand) a claim only meets by
   * its losses: two that pick alike lose half of their candidates, so after a loss of more than 5 % the next pick is spread.
   */
  private async candidates(terms: Terms, request: CandidateRequest): Promise<Candidates> {
    const { phase } = request
    const found = await findCandidateDocuments(this.options.collection, terms, {
      ...request,
      share: this.isShared(terms, phase) ? this.share : undefined,
      spread: this.contended.has(phase) && this.share.of === 1 ? 4 : 1,
      crowded: this.crowded.has(phase),
    })
    if (found.crowded) this.crowded.add(phase)
    else this.crowded.delete(phase)
    return found
  }

  /** What others can't take is not theirs. */
  private isShared({ only }: Terms, phase: string): boolean {
    return !only?.phases.includes(phase)
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
}

function alone({ replica, clock }: Pick<ClaimsOptions, 'replica' | 'clock'>): Share {
  const standing = { self: replica, replicas: [replica] }
  return new Share(() => standing, clock)
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
