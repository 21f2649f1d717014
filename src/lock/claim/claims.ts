import type { Document } from 'mongodb'
import { type CandidateRequest, lookForCandidates, type Seen } from '../candidates/candidates.js'
import { type ClaimOrder, OrderedLook, oddRank, orderIndexes } from '../candidates/order.js'
import { idBytes, idKey, type OddField, oddFields } from '../documents/values.js'
import type { Refused } from '../documents/write.js'
import { onlyIn } from '../lease/lease-state.js'
import type { ServerClock } from '../lease/server-clock.js'
import type { PhaseMemory } from '../select/phase-memory.js'
import { RefusingDocuments } from '../select/refusing-documents.js'
import { type Chosen, choose, extentFor, type SelectionPolicy } from '../select/selection.js'
import { Contention, WorkSplit } from '../select/work-split.js'
import type { Terms } from '../terms/terms.js'
import { claimCommands, fittingInto, MissedIds, withFewLarge } from './claim-commands.js'
import {
  addTaken,
  type Claimed,
  ClaimWriter,
  type ClaimWriterOptions,
  nothingTaken,
  type Taken,
  type Won,
} from './claim-writer.js'

export interface ClaimResult {
  readonly claimed: Claimed[]
  /** The number of candidates tried for. Fewer than the limit: nothing more is due. */
  readonly candidates: number
  /** Candidates that another replica got, or that were no longer due. */
  readonly lost: number
  /** Due documents that were left to the replicas whose share they are. */
  readonly left: number
  /** The time after which those that are still there may be claimed by any replica. */
  readonly againInMs: number
  /** True if there may be more due documents than the look for candidates has seen. */
  readonly more: boolean
  /** True if some were left for the next claim because they are too large, or too slow, for one command. */
  readonly cut: boolean
  /** `_id`s of documents of a broken shape: they were quarantined (lockedAt 9999-12-31), the rest of them stays. */
  readonly broken: unknown[]
  /** Documents that refuse a claim because of their own content: this replica leaves them alone for a while, unchanged. */
  readonly refused: Refused[]
  /** Documents, claimed or quarantined, with another type in one of Phaselock's fields. */
  readonly odd: { readonly id: unknown; readonly fields: readonly OddField[] }[]
}

/** Decides which of a claim's chosen documents it may try for. */
export interface Admission {
  /** The values of the field whose values take turns, whose documents may not be claimed now: they get no turn. */
  full(): readonly unknown[]
  /** Returns those that the claim may try for. */
  admit(documents: readonly Document[]): Promise<readonly Document[]>
  /** True if it decides by each document, so that no other document may be tried in place of one that it has admitted. */
  readonly hasKeys: boolean
  /** True if it has refused documents, and would refuse any others in their place. */
  readonly isExhausted: boolean
}

export interface ClaimsOptions extends ClaimWriterOptions {
  /** The terms in force; read at each claim, because lockTimeout may change. */
  readonly terms: () => Terms
  readonly serverClock: ServerClock
  /** Awaited before the claim where an admission came between it and its look, because that may take seconds. Default: nothing. */
  readonly keepTermsFresh?: (() => Promise<void>) | undefined
  /** Documents to leave alone; those that refuse a claim are added. Default: a list of its own. */
  readonly refusing?: RefusingDocuments | undefined
  readonly random?: (() => number) | undefined
  /** The documents that are this replica's share. Default: all. */
  readonly workSplit?: WorkSplit | undefined
  /** The order of due documents beyond "the longest untouched first". Default: no other. */
  readonly order?: ClaimOrder | undefined
}

/** The result of a claim that has tried for nothing. */
export const nothingClaimed: ClaimResult = {
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

/** The bytes of `_id`s that one command names: it holds 16 MB, and names them up to twice. A larger `_id` is left alone. */
const MOST_ID_BYTES = 2_000_000

/** The part of a lease within which a claim is in time: a slower one's leases are renewed only once it is over. */
const IN_TIME_PART = 1 / 3

const UNMATCHED: OddField = { field: '_id', found: 'an _id that JavaScript reads as a different one', isMended: false }

const idOf = (document: Document): unknown => document['_id']

/**
 * Takes leases on due documents of one collection: it looks for candidates, chooses among them (select/selection.ts), claims, and
 * learns from the result.
 *
 * Invariants: a document is claimed only while due by the server's clock, judged inside the update itself; a claim's token is used
 * by no other claim; a lease's local age counts from before the claim was sent. After an error whose outcome is unknown, what was
 * won is read back by its token. Anything still unknown is not used and expires: renewals name only documents and tokens that this
 * process knows.
 */
export class Claims {
  private readonly refusing: RefusingDocuments
  private readonly workSplit: WorkSplit
  private readonly contention: Contention
  private readonly random: () => number
  /** True if a command of the claim under way has failed, or its outcome is unknown. */
  private hasFailed = false
  private readonly missed: MissedIds
  private readonly writer: ClaimWriter
  private readonly lookFor: (terms: Terms, request: CandidateRequest) => Promise<Seen>

  constructor(private readonly options: ClaimsOptions) {
    const { collection, claimant, clock, random = Math.random } = options
    this.random = random
    this.refusing = options.refusing ?? new RefusingDocuments(clock)
    const alone = { self: claimant.identity, replicas: [claimant.identity] }
    this.workSplit = options.workSplit ?? new WorkSplit(() => alone, clock)
    this.contention = new Contention(() => this.workSplit.of > 1, random)
    this.missed = new MissedIds(collection)
    const { order = {} } = options
    const ordered = orderIndexes(order).length > 0 ? new OrderedLook(collection, order) : undefined
    this.lookFor = ordered
      ? (...asked) => ordered.look(...asked)
      : (...asked) => lookForCandidates(collection, ...asked)
    const onRetry = (error: unknown) => {
      this.hasFailed = true
      options.onRetry?.(error)
    }
    this.writer = new ClaimWriter({ ...options, onRetry, onStuck: (id) => this.refusing.stuckAt(id) })
  }

  /**
   * Claims up to `limit` due documents of a phase in a constant number of round trips: look for candidates, one conditional update,
   * read by the token what was won. More than 500 take two commands at the same time ({@link claimCommands}). A document that
   * refuses a claim because of its content (its size, the owner's validator) costs a few more round trips, but never another
   * document's claim.
   * @param won called with what each command has won as soon as it is known; the result has all of it
   * @param callers policies of the caller's for this claim
   * @param admission default: all chosen documents are tried for
   */
  async claimBatch(
    memory: PhaseMemory,
    limit: number,
    won: Won = () => undefined,
    callers: readonly SelectionPolicy[] = [],
    admission?: Admission,
  ): Promise<ClaimResult> {
    const terms = this.options.terms()
    const dueBound = this.options.serverClock.dueBound(terms.lockTimeoutMs)
    if (!dueBound) return nothingClaimed // the next look brings the time
    const { phase, most } = memory
    const policies = this.policiesFor(terms, phase, callers)
    const extent = extentFor(policies, memory, Math.min(limit, most))
    const full = admission?.full() ?? []
    const sized = most < Number.POSITIVE_INFINITY
    const { lists, more } = await this.lookFor(terms, { memory, extent, dueBound, sized, full })
    const chosen = choose(policies, memory, lists, extent, this.random)
    const admitted = admission ? await admission.admit(chosen.documents) : chosen.documents
    if (admission) await this.options.keepTermsFresh?.()
    const heldBack = chosen.documents.length - admitted.length
    const { left, againInMs } = chosen
    const spares = admission?.hasKeys ? [] : chosen.spares // the spares were not admitted
    // Some values have turned out to have no slot: behind them there may be others.
    const isHeldUp = more && heldBack > 0 && !admission?.isExhausted
    // The replica may have begun to stop while it waited for slots.
    if (admitted.length === 0 || (admission && this.options.isOver?.()))
      return { ...nothingClaimed, left, againInMs, more, cut: isHeldUp }
    const inForce = admission ? this.options.terms() : terms
    const { tried, taken, cut } = await this.claim(inForce, memory, { ...chosen, documents: admitted, spares }, won)
    const ids = tried.map(idOf)
    const missed = this.missedOf(ids, taken)
    for (const policy of policies) policy.learn?.(memory, { tried: ids, missed, hasRefused: taken.refused.length > 0 })
    const { claimed, broken, refused } = taken
    // Those that no claim can name.
    const unmatched = await this.missed.quarantine(terms, phase, missed).catch((error: unknown) => {
      if (claimed.length === 0) throw error
      return [] // the documents won are to be used
    })
    return {
      claimed,
      broken: [...broken, ...unmatched],
      refused,
      candidates: ids.length,
      lost: missed.length,
      left,
      againInMs,
      more,
      cut: cut || isHeldUp || (extent.places < limit && ids.length >= extent.places),
      odd: [...oddOf(tried, taken, this.options.order), ...unmatched.map((id) => ({ id, fields: [UNMATCHED] }))],
    }
  }

  /** The order matters: each chooses among those that the policies before it have left. */
  private policiesFor(terms: Terms, phase: string, callers: readonly SelectionPolicy[]): SelectionPolicy[] {
    const { refusing, workSplit, contention } = this
    return [refusing, isShared(terms, phase) ? workSplit : [], ...callers, contention].flat()
  }

  /** Tries for candidates and, if some refuse, for others in their place. */
  private async claim(
    terms: Terms,
    memory: PhaseMemory,
    { documents, spares }: Chosen,
    won: Won,
  ): Promise<{ tried: Document[]; taken: Taken; cut: boolean }> {
    const tried: Document[] = []
    const taken = nothingTaken()
    let cut = false
    let open = spares
    for (let next = documents; next.length > 0; ) {
      const some = withFewLarge(next)
      const { fitting, tooLarge, left } = fittingInto(some, MOST_ID_BYTES)
      cut ||= left > 0 || some.length < next.length
      tried.push(...fitting, ...tooLarge.map(({ document }) => document))
      const result = await this.tryFor(terms, memory, fitting, won).catch((error: unknown) => {
        if (taken.claimed.length === 0) throw error
        return undefined // the documents won are to be used
      })
      if (!result) break
      const refused = [...result.refused, ...tooLarge.map(({ document, error }) => ({ id: idOf(document), error }))]
      this.refusing.refusedIn(memory, refused)
      addTaken(taken, { ...result, refused })
      const free = documents.length - taken.claimed.length
      next = refused.length > 0 && !cut ? open.slice(0, free) : []
      open = open.slice(free)
    }
    return { tried, taken, cut }
  }

  private async tryFor(terms: Terms, memory: PhaseMemory, candidates: readonly Document[], won: Won): Promise<Taken> {
    const apart = memory.newestFirst !== undefined // some have just refused: one command for each is cheaper than several that fail
    const commands = claimCommands(candidates, {
      isSuspect: (id) => apart || this.refusing.isSuspect(id),
      wasMissed: (id) => this.missed.has(id),
    })
    const { clock } = this.options
    const sentAtMs = clock.monotonicMs()
    this.hasFailed = false
    let isInTime = false
    try {
      const taken = await this.writer.claim(terms, memory.phase, commands, won)
      isInTime = !this.hasFailed && clock.monotonicMs() - sentAtMs <= terms.leaseMs * IN_TIME_PART
      for (const { lease } of taken.claimed) this.refusing.remove(lease.id)
      return taken
    } finally {
      memory.took(candidates.length, isInTime)
    }
  }

  /** Candidates that this claim tried for but neither got nor quarantined. */
  private missedOf(ids: readonly unknown[], { claimed, broken, refused, untried }: Taken): unknown[] {
    if (claimed.length === ids.length) return []
    const accounted = [...claimed.map(({ lease }) => lease.id), ...broken, ...untried, ...refused.map(({ id }) => id)]
    const known = new Set(accounted.map(idKey))
    return ids.filter((id) => !known.has(idKey(id)) && !this.refusing.isSuspect(id))
  }

  /**
   * Claims those of the named documents that are due and this replica's share, without a look for candidates: one round trip for
   * one document. The others are left to the replicas whose share they are, as if a look had seen them. Those that were claimed
   * before without a recorded outcome are also left to a look.
   * @returns `notFound`: the number of documents in this replica's share that were not there, not due, or held by another replica
   */
  async claimNamed(
    memory: PhaseMemory,
    ids: readonly unknown[],
    won: Won = () => undefined,
  ): Promise<ClaimResult & { notFound: number }> {
    const terms = this.options.terms()
    const { phase } = memory
    const nameable = ids.filter((id) => !this.refusing.isSuspect(id) && idBytes(id) <= MOST_ID_BYTES)
    const shares = isShared(terms, phase)
    const { own = [], others = [] } = Object.groupBy(nameable, (id) =>
      !shares || this.workSplit.isOwn(idKey(id), phase) ? 'own' : 'others',
    )
    const againInMs = others.length > 0 ? this.workSplit.leave(memory, others.map(idKey)) : 0
    const unsuspected = { ...terms, only: { phases: [phase], where: unsuspectedIn(terms, phase) } }
    const together = own.length > 0 ? [{ ids: own, areNew: false }] : []
    const { claimed, broken, refused } = await this.writer.claim(unsuspected, phase, { together, apart: [] }, won)
    for (const { id } of refused) this.refusing.add(id)
    const candidates = claimed.length + broken.length + refused.length
    const notFound = own.length - candidates
    return { ...nothingClaimed, claimed, broken, refused, candidates, left: others.length, againInMs, notFound }
  }
}

/** Documents that others can't take aren't shared with them. */
const isShared = ({ only }: Terms, phase: string): boolean => !only?.phases.includes(phase)

/** Matches documents without a claim whose outcome wasn't recorded. */
const unsuspectedIn = (terms: Terms, phase: string): Document => ({
  $and: [onlyIn(terms, phase), { [`${terms.progress}.claims`]: { $not: { $gte: 1 } } }],
})

function oddOf(tried: readonly Document[], { claimed, broken }: Taken, order: ClaimOrder = {}): ClaimResult['odd'] {
  const odd = tried.flatMap((document) => {
    const fields = [
      ...oddFields(document),
      ...(order.priorityBy === undefined ? [] : oddRank(document, order.priorityBy)),
    ]
    return fields.length > 0 ? [{ id: idOf(document), fields }] : []
  })
  if (odd.length === 0) return odd
  const ours = new Set([...claimed.map(({ lease }) => lease.id), ...broken].map(idKey))
  return odd.filter(({ id }) => ours.has(idKey(id)))
}
