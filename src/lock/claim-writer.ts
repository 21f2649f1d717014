import type { Collection, Document, Filter, FindOneAndUpdateOptions } from 'mongodb'
import type { Clock } from '../time/index.js'
import type { ClaimPart, ClaimParts } from './claim-parts.js'
import { readBackClaim } from './claim-read-back.js'
import { claimUpdate, firstClaimUpdate, neverClaimed } from './claim-update.js'
import { ID_INDEX } from './constants.js'
import { idKey } from './id-key.js'
import { Lease } from './lease.js'
import { leaseUnmoved } from './legacy-writers.js'
import { putAsideAmong } from './put-aside.js'
import { type ReadEach, readEach } from './read-each.js'
import { dueIn, type Terms } from './terms.js'
import { Claim } from './token.js'
import { idsOf, type Refused, writeAround } from './write-around.js'
import { isDatabaseError, isDefiniteRefusal } from './write-error.js'

/** A document that this replica holds, as it was when claimed. */
export interface Claimed {
  readonly document: Document
  readonly lease: Lease
  /** Why the driver can't read it; `document` has nothing but its `_id` and phase then. */
  readonly unreadable?: Error | undefined
}

/** Told of documents as soon as they have been won. */
export type Won = (claimed: readonly Claimed[]) => void

/** What a claim has come to. */
export interface Taken {
  readonly claimed: Claimed[]
  /** `_id`s of documents of a broken shape: they were put aside. */
  readonly broken: unknown[]
  readonly refused: Refused[]
  /** Left for the next time. */
  readonly untried: unknown[]
}

export interface ClaimWriterOptions {
  readonly collection: Collection
  readonly replica: string
  readonly clock: Clock
  readonly projection?: Document | undefined
  readonly maxTimeMS?: number | undefined
  readonly onRetry?: ((error: unknown) => void) | undefined
  readonly isOver?: (() => boolean) | undefined
}

/**
 * Claims of this process so far: lifecycles of one replica share its identity, and may share a collection, so they must not
 * give out the same token.
 */
let claimsSoFar = 0

/**
 * The writes of claims: conditional updates that judge by the server's clock what is due, each under a token of its own, and the
 * reading of what they have won.
 */
export class ClaimWriter {
  constructor(private readonly options: ClaimWriterOptions) {}

  /**
   * Claims all parts at once, then the suspects one by one. A part that fails leaves the others what they have won.
   * @throws the first error where nothing was won
   */
  async claim(terms: Terms, phase: string, { parts, suspects }: ClaimParts, won: Won): Promise<Taken> {
    const all: Taken = { claimed: [], broken: [], refused: [], untried: [] }
    const failures: unknown[] = []
    const claim = async (part: ClaimPart) => {
      const taken: Taken = { claimed: [], broken: [], refused: [], untried: [] }
      try {
        await this.claimPart(terms, phase, part, taken)
      } catch (error) {
        const known = new Set([...taken.claimed.map(({ lease }) => lease.id), ...taken.broken].map(idKey))
        all.untried.push(...part.ids.filter((id) => !known.has(idKey(id))))
        failures.push(error)
      }
      all.claimed.push(...taken.claimed)
      all.broken.push(...taken.broken)
      all.refused.push(...taken.refused)
      all.untried.push(...taken.untried)
      won(taken.claimed)
    }
    await Promise.all(parts.map(claim))
    for (const suspect of suspects) if (failures.length === 0) await claim(suspect)
    if (failures.length > 0 && all.claimed.length === 0) throw failures[0]
    return all
  }

  /** Whatever document matches first, in one `findOneAndUpdate`. */
  claimFirst(
    terms: Terms,
    filter: Filter<Document>,
    how: Pick<FindOneAndUpdateOptions, 'sort' | 'hint'>,
  ): Promise<Pick<Taken, 'claimed' | 'broken'>> {
    return this.findOneAndClaim(terms, filter, how)
  }

  /** One part; documents that refuse are found by halves, and the others claimed. */
  private async claimPart(terms: Terms, phase: string, { ids, areNew }: ClaimPart, taken: Taken): Promise<void> {
    const { collection } = this.options
    const { refused, untried } = await writeAround(
      ids,
      (some) => this.claimThese(terms, phase, { ids: some, areNew }, taken),
      (some) => idsOf(collection, { _id: { $in: some as never[] }, ...dueIn(terms, phase) }, this.limits()),
    )
    taken.refused.push(...refused)
    taken.untried.push(...untried)
  }

  private async claimThese(terms: Terms, phase: string, part: ClaimPart, taken: Taken): Promise<void> {
    const { ids } = part
    if (ids.length > 1) return this.updateAndRead(terms, phase, part, taken)
    const filter = { _id: ids[0] as never, ...dueIn(terms, phase) }
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
  ): Promise<Pick<Taken, 'claimed' | 'broken'>> {
    const claim = this.nextClaim(terms)
    const sentAtMs = this.options.clock.monotonicMs()
    const options = { ...how, returnDocument: 'after' as const, ...this.reading(), ...this.limits() }
    let document: Document | null | undefined
    try {
      document = await this.options.collection.findOneAndUpdate(filter, claimUpdate(terms, claim.token), options)
    } catch (error) {
      // What fails over the answer says nothing against the claim.
      const isOfAnswer = !isDatabaseError(error)
      if (!ids || (isDefiniteRefusal(error) && !isOfAnswer)) throw error
      const won = isOfAnswer
        ? await this.wonOf(terms, ids, claim.token)
        : await this.readBack(terms, ids, claim.token, error)
      document = won.documents[0]
      if (!document) return { claimed: this.unreadable(won, claim, sentAtMs, terms), broken: [] }
    }
    if (!document) return { claimed: [], broken: [] }
    if (document['lockedBy'] !== claim.token) return { claimed: [], broken: [document['_id']] }
    return { claimed: [this.leased(document, claim, sentAtMs, terms)], broken: [] }
  }

  /**
   * Claims some at once. A command that is refused has written those before the culprit: they are read by the token like
   * any others, and what is left is tried again by halves.
   */
  private async updateAndRead(terms: Terms, phase: string, { ids, areNew }: ClaimPart, taken: Taken): Promise<void> {
    const { collection, clock } = this.options
    const claim = this.nextClaim(terms)
    const sentAtMs = clock.monotonicMs()
    let matched = 0
    let refusal: Error | undefined
    let won: ReadEach
    try {
      try {
        const result = await collection.updateMany(
          { _id: { $in: ids as never[] }, ...dueIn(terms, phase), ...(areNew ? neverClaimed(terms, phase) : {}) },
          areNew ? firstClaimUpdate(terms, claim.token) : claimUpdate(terms, claim.token),
          { hint: ID_INDEX, ...this.limits() },
        )
        matched = result.matchedCount
      } catch (error) {
        if (!isDefiniteRefusal(error)) throw error
        refusal = error
      }
      won = await this.wonOf(terms, ids, claim.token)
    } catch (error) {
      if (isDefiniteRefusal(error)) throw error
      won = await this.readBack(terms, ids, claim.token, error)
    }
    taken.claimed.push(...won.documents.map((document) => this.leased(document, claim, sentAtMs, terms)))
    taken.claimed.push(...this.unreadable(won, claim, sentAtMs, terms))
    if (refusal || matched > won.documents.length + won.unreadable.length) {
      const known = new Set(taken.broken.map(idKey))
      const aside = (await putAsideAmong(this.options.collection, terms, ids)).map(({ id }) => id)
      taken.broken.push(...aside.filter((id) => !known.has(idKey(id))))
    }
    if (refusal) throw refusal
  }

  private wonOf(terms: Terms, ids: readonly unknown[], token: string): Promise<ReadEach> {
    return readEach(
      this.options.collection,
      { _id: { $in: ids as never[] }, lockedBy: token, ...leaseUnmoved(terms) },
      // One reply, room for one more so that it is the last: else two commands more a claim (101 first, then the rest).
      { hint: ID_INDEX, batchSize: ids.length + 1, ...this.reading(), ...this.limits() },
    )
  }

  /** @throws the error when nothing was won, so that nobody takes an outage for a claim that others won */
  private async readBack(terms: Terms, ids: readonly unknown[], token: string, error: unknown): Promise<ReadEach> {
    const { collection, projection, onRetry, isOver } = this.options
    const won = await readBackClaim({ terms, collection, ids, token, projection, onRetry, isOver }, error)
    if (won.documents.length + won.unreadable.length === 0) throw error
    return won
  }

  /** Claimed like the others, so that they can be put aside under their token. */
  private unreadable({ unreadable }: ReadEach, claim: Claim, sentAtMs: number, terms: Terms): Claimed[] {
    return unreadable.map(({ id, error }) => {
      return { ...this.leased({ _id: id, fence: 0 }, claim, sentAtMs, terms), unreadable: error }
    })
  }

  private nextClaim(terms: Terms): Claim {
    claimsSoFar += 1
    return new Claim(terms.protocol, this.options.replica, claimsSoFar)
  }

  private leased(document: Document, claim: Claim, sentAtMs: number, { leaseMs }: Terms): Claimed {
    const fence = Number(document['fence'])
    const lease = new Lease(document['_id'], claim, claim.token, fence, sentAtMs, leaseMs, this.options.clock)
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
