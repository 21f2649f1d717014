import type { Collection, Document, Filter } from 'mongodb'
import type { Clock } from '../../time/index.js'
import { idBytes, idKey } from '../documents/id-key.js'
import type { Refused } from '../documents/write-around.js'
import { isDatabaseError, isDefiniteRefusal } from '../documents/write-error.js'
import { onClaimIndex } from '../indexes/claim-index.js'
import { dueIn, notAfter, onlyIn } from '../lease/lease-state.js'
import { type CandidateRequest, type Candidates, findCandidateDocuments } from '../look/candidates.js'
import { type OddField, oddFields } from '../repair/odd-fields.js'
import { RefusingDocuments } from '../select/refusing-documents.js'
import { WorkSplit } from '../select/work-split.js'
import type { ServerClock } from '../terms/server-clock.js'
import type { Terms } from '../terms/terms.js'
import { claimCommands, fittingInto, isLarge, withFewLarge } from './claim-commands.js'
import { type Claimed, ClaimWriter, type Taken, type Won } from './claim-writer.js'
import { MissedIds } from './missed-ids.js'

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
  /** Whether some were left for the next claim because they are too large, or too slow, for one command. */
  readonly cut: boolean
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
  skips?: RefusingDocuments | undefined
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
  share?: WorkSplit | undefined
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
  cut: false,
  broken: [],
  refused: [],
  odd: [],
}

/** `_id`s in one command: a command holds 16 MB, and names them up to twice. A larger one is left alone. */
const MOST_ID_BYTES = 2_000_000
/** Where some have just refused, a claim takes so many at most, as each of them may cost a command of its own. */
const MOST_BESIDE_REFUSALS = 250
/** And so many more candidates are read, to be tried in the places of others that refuse. */
const RESERVES = 250
/** A look goes on for so many at most behind those that are not to be claimed now. */
const MOST_PASSED_OVER = 5_000
/** A phase whose claims came in time again with so many is as fast as any. */
const FAST_ENOUGH = 1_000
/** A claim that takes longer than this part of a lease hasn't come in time: its leases are renewed only when it is over. */
const IN_TIME_PART = 1 / 3
/** After so many claims that came in time the next one may be twice as large. */
const IN_TIME = 8

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
  private readonly share: WorkSplit
  private readonly contended = new Set<string>()
  private readonly crowded = new Set<string>()
  /**
   * Phases of which the last claim met documents that refuse, and whether the next one begins with the newest: by turns with the
   * oldest, so that what stands behind any number of refusing documents waits for one claim and not for all of them.
   */
  private readonly refusing = new Map<string, { readonly newestFirst: boolean }>()
  private readonly skips: RefusingDocuments
  /** By phase: the most documents in a claim, where the last ones didn't come in time. */
  private readonly slow = new Map<string, { readonly most: number; readonly inTime: number }>()
  private wasDoubtful = false
  /** Candidates that the last claim was not to take: the next look goes further. */
  private passedOver = 0
  private readonly missed: MissedIds
  private readonly writer: ClaimWriter

  constructor(private readonly options: ClaimsOptions) {
    this.skips = options.skips ?? new RefusingDocuments(options.clock)
    this.missed = new MissedIds(options.collection)
    const onRetry = (error: unknown) => {
      this.wasDoubtful = true
      options.onRetry?.(error)
    }
    this.writer = new ClaimWriter({ ...options, onRetry })
    this.share = options.share ?? alone(options)
  }

  /** The oldest due document of a phase in one `findOneAndUpdate`; nothing claimed: nothing due, or everybody else's. */
  async claimOne(phase: string): Promise<ClaimResult> {
    const terms = this.options.terms()
    const bound = this.options.serverClock.dueBound(terms.lockTimeoutMs)
    const filter: Filter<Document> = { ...dueIn(terms, phase), ...notAfter(bound) }
    const skipped = this.skips.ids()
    if (skipped.length > 0) filter['_id'] = { $nin: skipped as never[] }
    const sort = { lockedAt: 1, updatedAt: 1 } as const
    try {
      return await onClaimIndex(this.options.collection, async (hint) => {
        const { claimed, broken } = await this.writer.claimFirst(terms, filter, { sort, hint })
        return { ...NOTHING, claimed, broken, candidates: claimed.length + broken.length }
      })
    } catch (error) {
      if (!isDefiniteRefusal(error) || !isDatabaseError(error)) throw error
      // Which document it was isn't told: read what stands first.
      const first = await onClaimIndex(this.options.collection, (hint) =>
        this.options.collection.find(filter, { projection: { _id: 1 }, sort, hint, limit: 1 }).toArray(),
      )
      const refused = first.map((document) => ({ id: document['_id'] as unknown, error }))
      for (const { id } of refused) this.skips.add(id)
      return { ...NOTHING, candidates: refused.length, refused }
    }
  }

  /**
   * Up to `limit` due documents of a phase in a constant number of round trips: find candidates, one conditional update,
   * read those won by the token; more than 500 in two parts at once ({@link claimCommands}). A document that refuses a claim for its
   * own sake (its size, the owner's validator) costs a few more, and none of the others their claim.
   * @param won told of each part that was won as soon as it is; the result has all of them
   * @param admits whether a candidate may be claimed now, by what of it Phaselock looks at and how often it was claimed before
   */
  async claimBatch(
    phase: string,
    limit: number,
    won: Won = () => undefined,
    admits?: (document: Document) => boolean,
  ): Promise<ClaimResult> {
    const terms = this.options.terms()
    const dueBound = this.options.serverClock.dueBound(terms.lockTimeoutMs)
    if (!dueBound) {
      const result = await this.claimOne(phase)
      won(result.claimed)
      return result
    }
    const further = Math.min(MOST_PASSED_OVER, 2 * this.passedOver)
    this.passedOver = 0
    const refusing = this.refusing.get(phase)
    const most = Math.min(limit, this.slow.get(phase)?.most ?? limit, refusing ? MOST_BESIDE_REFUSALS : limit)
    const {
      documents,
      reserves,
      parted: { left, againInMs, late },
      more,
    } = await this.candidates(terms, {
      phase,
      limit: most,
      dueBound,
      random: this.options.random ?? Math.random,
      skips: this.skips,
      reserves: further + (refusing ? RESERVES : 0),
      newestFirst: refusing?.newestFirst,
      sized: this.slow.has(phase),
      admits: (document) => {
        const mayBeClaimed = admits?.(document) ?? true
        if (!mayBeClaimed) this.passedOver += 1
        return mayBeClaimed
      },
    })
    if (documents.length === 0) return { ...NOTHING, left, againInMs, more }
    const { candidates, taken, cut } = await this.claimCandidates(terms, phase, documents, reserves, won)
    if (taken.refused.length > 0) this.refusing.set(phase, { newestFirst: !refusing?.newestFirst })
    else this.refusing.delete(phase)
    const ids = candidates.map((document) => document['_id'] as unknown)
    const missed = this.missedOf(ids, taken)
    if (ids.length > 1 && missed.length > ids.length * 0.05) this.contended.add(phase)
    else this.contended.delete(phase)
    if (late.size > 0) this.share.tookOver(countIn(late, ids), countIn(late, missed))
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
    const tried = { candidates: ids.length, lost: missed.length }
    return {
      claimed,
      broken,
      refused,
      ...tried,
      left,
      againInMs,
      more,
      cut: cut || (most < limit && ids.length >= most),
      odd,
    }
  }

  /** Tries for candidates, and where some of them refuse for further ones in their places. */
  private async claimCandidates(
    terms: Terms,
    phase: string,
    documents: readonly Document[],
    reserves: readonly Document[],
    won: Won,
  ): Promise<{ candidates: Document[]; taken: Taken; cut: boolean }> {
    const candidates: Document[] = []
    const taken: Taken = { claimed: [], broken: [], refused: [], untried: [] }
    let cut = false
    let open = [...reserves]
    for (let next = documents; next.length > 0; ) {
      const some = withFewLarge(next)
      const fitting = fittingInto(some, MOST_ID_BYTES)
      cut ||= fitting.left > 0 || some.length < next.length
      candidates.push(...fitting.some, ...fitting.tooLarge.map(({ document }) => document))
      const result = await this.tryFor(terms, phase, fitting.some, won).catch((error: unknown) => {
        if (taken.claimed.length === 0) throw error
        return undefined // what was won is to be used
      })
      if (!result) break
      const refused = [
        ...result.refused,
        ...fitting.tooLarge.map(({ document, error }) => ({ id: document['_id'], error })),
      ]
      for (const { id } of refused) this.skips.add(id)
      if (refused.length > 0 && !this.refusing.has(phase)) this.refusing.set(phase, { newestFirst: false })
      taken.claimed.push(...result.claimed)
      taken.broken.push(...result.broken)
      taken.refused.push(...refused)
      taken.untried.push(...result.untried)
      const free = documents.length - taken.claimed.length
      next = refused.length > 0 && !cut ? open.slice(0, free) : []
      open = open.slice(free)
    }
    return { candidates, taken, cut }
  }

  /** A claim that doesn't come in time is followed by smaller ones, down to a single document. */
  private async tryFor(terms: Terms, phase: string, candidates: readonly Document[], won: Won): Promise<Taken> {
    this.wasDoubtful = false
    const { clock } = this.options
    const sentAtMs = clock.monotonicMs()
    try {
      const large = new Set(candidates.filter(isLarge).map(({ _id }) => _id as unknown))
      const isSuspect = (id: unknown) => this.skips.isSuspect(id) || large.has(id)
      // Where some have just refused others may: one command for each of them for itself, instead of several that fail.
      const apart = this.refusing.has(phase)
      const parts = claimCommands(candidates, {
        isSuspect: (id) => apart || isSuspect(id),
        wasMissed: (id) => this.missed.has(id),
      })
      const taken = await this.writer.claim(terms, phase, parts, won)
      for (const { lease } of taken.claimed) this.skips.remove(lease.id)
      return taken
    } catch (error) {
      this.wasDoubtful = true
      throw error
    } finally {
      if (clock.monotonicMs() - sentAtMs > terms.leaseMs * IN_TIME_PART) this.wasDoubtful = true
      this.adapt(phase, candidates.length)
    }
  }

  /** A time-out costs far more than a small claim, so a larger one is tried seldom. */
  private adapt(phase: string, tried: number): void {
    const slow = this.slow.get(phase)
    if (this.wasDoubtful) this.slow.set(phase, { most: Math.max(1, Math.floor(tried / 2)), inTime: 0 })
    else if (slow && slow.most >= FAST_ENOUGH) this.slow.delete(phase)
    else if (slow && tried >= slow.most) {
      const inTime = slow.inTime + 1
      this.slow.set(phase, inTime < IN_TIME ? { ...slow, inTime } : { most: slow.most * 2, inTime: 0 })
    }
  }

  /**
   * Those of some documents that fall to this replica and are due, without a look for candidates: one round trip where it is one
   * document. The others are left to the replicas to which they fall, as if a look had seen them. Those that were claimed before
   * without a recorded outcome are left to a look, too.
   */
  async claimNamed(phase: string, ids: readonly unknown[], won: Won = () => undefined): Promise<NamedResult> {
    const terms = this.options.terms()
    const own: unknown[] = []
    const others: string[] = []
    const isShared = this.isShared(terms, phase)
    for (const id of ids) {
      const key = idKey(id)
      if (this.skips.isSuspect(id) || idBytes(id) > MOST_ID_BYTES) continue
      if (!isShared || this.share.isOwn(key)) own.push(id)
      else others.push(key)
    }
    const againInMs = others.length > 0 ? this.share.leave(phase, others) : 0
    const unsuspected = { ...terms, only: { phases: [phase], where: unsuspectedIn(terms, phase) } }
    const parts = own.length > 0 ? [{ ids: own, areNew: false }] : []
    const { claimed, broken, refused } = await this.writer.claim(unsuspected, phase, { parts, suspects: [] }, won)
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

/** Documents whose last claim has a recorded outcome. */
const unsuspectedIn = (terms: Terms, phase: string): Document => ({
  $and: [onlyIn(terms, phase), { [`${terms.progress}.claims`]: { $not: { $gte: 1 } } }],
})

function alone({ replica, clock }: Pick<ClaimsOptions, 'replica' | 'clock'>): WorkSplit {
  const standing = { self: replica, replicas: [replica] }
  return new WorkSplit(() => standing, clock)
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
