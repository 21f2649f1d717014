import type { Collection, Document, FindOptions } from 'mongodb'
import { type Clock, sleep } from '../../time/index.js'
import {
  isDatabaseError,
  ownersReading,
  type ReadEach,
  readEach,
  type Unreadable,
  withOwnNumbers,
} from '../documents/read.js'
import { idKey } from '../documents/values.js'
import {
  idsOf,
  isDefiniteRefusal,
  isOverTime,
  mostPerUpdate,
  perUpdate,
  type Refused,
  retryPauseMs,
  updateApart,
  updateNamed,
  writeAround,
} from '../documents/write.js'
import { type Claimant, type ClaimTokens, Lease, leaseUnmoved } from '../lease/lease.js'
import { dueIn, isDue } from '../lease/lease-state.js'
import { quarantineAmong } from '../repair/repair.js'
import { ID_INDEX, type Terms } from '../terms/terms.js'
import { type ClaimCommand, type ClaimCommands, claimUpdate, firstClaimUpdate, neverClaimed } from './claim-commands.js'

/** After this many refusals the rest of a claim is left for the next one, which begins elsewhere. */
const MOST_REFUSED = 100

/**
 * The server's time limit. It is less than a client waits, which is a third of the lease, because the server's answer shows where a
 * claim was stuck.
 */
const limitOf = ({ leaseMs }: Terms) => ({ maxTimeMS: Math.min(9_000, Math.max(1_500, leaseMs * 0.3)) })
/** The time limit of documents that blocked a claim, which are tried apart: they don't hold up the others for the same time again. */
const limitApart = (terms: Terms) => ({ maxTimeMS: limitOf(terms).maxTimeMS / 3 })

/** A document that this replica holds, in its state at the claim. */
export interface Claimed {
  readonly document: Document
  readonly lease: Lease
  /** The reason that the driver can't read it; `document` then has only its `_id` and a fence of 0. */
  readonly unreadable?: Error | undefined
}

/** Called with documents as soon as they have been won. */
export type Won = (claimed: readonly Claimed[]) => void

/** The result of a claim. */
export interface Taken {
  readonly claimed: Claimed[]
  /** `_id`s of documents of a broken shape: they were quarantined. */
  readonly broken: unknown[]
  readonly refused: Refused[]
  /** Left for the next time. */
  readonly untried: unknown[]
}

export const nothingTaken = (): Taken => ({ claimed: [], broken: [], refused: [], untried: [] })

export function addTaken(to: Taken, { claimed, broken, refused, untried }: Taken): void {
  to.claimed.push(...claimed)
  to.broken.push(...broken)
  to.refused.push(...refused)
  to.untried.push(...untried)
}

/** Commands under way: the documents that they may win, their tokens, when they began, and what they have won. */
interface Sending {
  readonly terms: Terms
  readonly ids: readonly unknown[]
  readonly claims: readonly ClaimTokens[]
  readonly sentAtMs: number
  readonly taken: Taken
}

/** The result of a claim's command. `refusal`: it ended at the first document that refused; `refused`: those that did. */
interface Sent {
  readonly matched: number
  readonly refusal?: Error
  readonly refused?: readonly Refused[]
}

export interface ClaimWriterOptions {
  readonly collection: Collection
  readonly claimant: Claimant
  readonly clock: Clock
  /** The projection of a document that was claimed. Default: all of it. */
  readonly projection?: Document | undefined
  /** Called once per failed command of a claim that is then read back, so that an outage can be logged with a bound. */
  readonly onRetry?: ((error: unknown) => void) | undefined
  /** Called with the document at which a command ran out of time: something has locked it, such as an open transaction of its owner. */
  readonly onStuck?: ((id: unknown) => void) | undefined
  /** True once claiming is over: a claim that is being read back is then left to expire. */
  readonly isOver?: (() => boolean) | undefined
}

/**
 * The writes of claims: conditional updates, each under its own token, that judge by the server's clock which documents are due.
 * Also the reads of what they have won.
 */
export class ClaimWriter {
  private readonly reading: { projection?: Document }

  constructor(private readonly options: ClaimWriterOptions) {
    this.reading = options.projection ? { projection: options.projection } : {}
  }

  /**
   * Sends the commands at the same time, then claims each of the others separately. If one fails, the others keep what they have
   * won.
   * @throws the first error if nothing was won
   */
  async claim(terms: Terms, phase: string, { together, apart }: ClaimCommands, won: Won): Promise<Taken> {
    const all = nothingTaken()
    const failures: unknown[] = []
    const claim = async (ids: readonly unknown[], work: (taken: Taken) => Promise<void>) => {
      const taken = nothingTaken()
      try {
        await work(taken)
      } catch (error) {
        const known = new Set([...taken.claimed.map(({ lease }) => lease.id), ...taken.broken].map(idKey))
        taken.untried.push(...ids.filter((id) => !known.has(idKey(id))))
        failures.push(error)
      }
      addTaken(all, taken)
      won(taken.claimed)
    }
    await Promise.all(together.map((command) => claim(command.ids, (taken) => this.send(terms, phase, command, taken))))
    if (apart.length > 0 && failures.length === 0) {
      await claim(apart, async (taken) => {
        taken.refused.push(...(await this.claimApart(terms, phase, apart, taken)))
      })
    }
    if (failures.length > 0 && all.claimed.length === 0) throw failures[0]
    return all
  }

  /** Sends one command. Documents that refuse don't stop the others. */
  private async send(terms: Terms, phase: string, { ids, areNew }: ClaimCommand, taken: Taken): Promise<void> {
    const { collection } = this.options
    const { refused, untried } = await writeAround(
      ids,
      {
        together: (some) => this.claimThese(terms, phase, { ids: some, areNew }, taken),
        apart: (some) => this.claimApart(terms, phase, some, taken),
        leftOf: (some) => idsOf(collection, { _id: { $in: some as never[] }, ...dueIn(terms, phase) }, limitOf(terms)),
      },
      MOST_REFUSED,
    )
    taken.refused.push(...refused)
    taken.untried.push(...untried)
  }

  /** Claims these documents. A command that is refused has written those before the culprit: they are read by the token like any others. */
  private async claimThese(terms: Terms, phase: string, { ids, areNew }: ClaimCommand, taken: Taken): Promise<void> {
    if (ids.length === 1) {
      await this.claimSingle(terms, phase, ids, taken)
      return
    }
    const sending = this.begin(terms, ids, taken)
    const { token } = sending.claims[0]!
    const isDue = areNew ? { ...dueIn(terms, phase), ...neverClaimed(terms, phase) } : dueIn(terms, phase)
    const update = areNew ? firstClaimUpdate(terms, token) : claimUpdate(terms, token)
    const { collection } = this.options
    const updates = perUpdate(collection, ids).map((some) => {
      return { ids: some, filter: { _id: { $in: some as never[] }, ...isDue }, update }
    })
    await this.win(sending, async () => {
      try {
        return { matched: (await updateNamed(collection, updates, limitOf(terms))).matchedCount }
      } catch (error) {
        if (isDefiniteRefusal(error)) return { matched: 0, refusal: error }
        throw error
      }
    })
  }

  /** Claims each document under its own token, so that no two can get in each other's way. */
  private claimApart(terms: Terms, phase: string, ids: readonly unknown[], taken: Taken): Promise<readonly Refused[]> {
    const sending = this.begin(terms, ids, taken, ids.length)
    const updates = ids.map((id, i) => ({
      id,
      filter: { _id: id as never, ...dueIn(terms, phase) },
      update: claimUpdate(terms, sending.claims[i]!.token),
    }))
    return this.win(sending, () => updateApart(this.options.collection, updates, limitApart(terms)))
  }

  private begin(terms: Terms, ids: readonly unknown[], taken: Taken, claims = 1): Sending {
    const { claimant, clock } = this.options
    const tokens = Array.from({ length: claims }, () => claimant.nextClaim())
    return { terms, ids, taken, claims: tokens, sentAtMs: clock.monotonicMs() }
  }

  /**
   * Sends a claim and reads what it has won; if its outcome is unknown, as soon as the database answers.
   * @throws the error with which the server refused all of it
   */
  private async win(sending: Sending, send: () => Promise<Sent>): Promise<readonly Refused[]> {
    let sent: Sent | undefined
    let won: ReadEach
    try {
      sent = await send()
      if (sent.matched === 0 && !sent.refusal) return sent.refused ?? []
      won = await this.wonOf(sending)
    } catch (error) {
      if (isDefiniteRefusal(error)) throw error
      won = await this.readBack(sending, error)
    }
    this.take(won, sending)
    if (sent?.refusal || sent?.matched !== won.documents.length + won.unreadable.length) await this.takeBroken(sending)
    if (sent?.refusal) throw sent.refusal
    return sent?.refused ?? []
  }

  /** Claims one document and reads it in one command. */
  private async claimSingle(terms: Terms, phase: string, ids: readonly unknown[], taken: Taken): Promise<void> {
    const sending = this.begin(terms, ids, taken)
    const claim = sending.claims[0]!
    const { collection } = this.options
    const filter = { _id: ids[0] as never, ...dueIn(terms, phase) }
    const options = { hint: ID_INDEX, returnDocument: 'after' as const, ...this.reading, ...ownersReading(collection) }
    try {
      const update = claimUpdate(terms, claim.token)
      const document = await collection.findOneAndUpdate(filter, update, { ...options, ...limitOf(terms) })
      if (document?.['lockedBy'] === claim.token)
        taken.claimed.push(this.leased(withOwnNumbers(collection, terms.progress, document), claim, sending))
      else if (document) taken.broken.push(document['_id'])
    } catch (error) {
      // A failure to read the answer doesn't mean that the claim failed.
      const isOfAnswer = !isDatabaseError(error)
      if (isDefiniteRefusal(error) && !isOfAnswer) throw error
      this.take(await (isOfAnswer ? this.wonOf(sending) : this.readBack(sending, error)), sending)
    }
  }

  private async takeBroken({ terms, ids, taken }: Sending): Promise<void> {
    const known = new Set(taken.broken.map(idKey))
    const aside = (await quarantineAmong(this.options.collection, terms, ids)).map(({ id }) => id)
    taken.broken.push(...aside.filter((id) => !known.has(idKey(id))))
  }

  private wonOf({ terms, ids, claims }: Sending, how: FindOptions = limitOf(terms)): Promise<ReadEach> {
    const lockedBy = { $in: claims.map(({ token }) => token) }
    return readEach(
      this.options.collection,
      { _id: { $in: ids as never[] }, lockedBy, ...leaseUnmoved(terms) },
      // All in one reply, with room for one more so that it is the last; else each claim takes two more commands (101 first, then the rest).
      { hint: ID_INDEX, batchSize: ids.length + 1, ...this.reading, ...how },
      terms.progress,
    )
  }

  /**
   * Reads the documents won by a claim whose outcome is unknown (network, timeout, failover), by its token, until the database
   * answers: fewer at a time after each failure, because they may be too large for one answer. Otherwise they would wait until
   * their lease has expired, each counting as a claim without an outcome. One whose lease expires in the meantime is still this
   * replica's to unlock. A claim that arrives after this read has no holder: it expires.
   * @throws the last error when claiming is over, or when the read is refused; that of the claim if nothing was won, so that an
   *   outage isn't mistaken for a claim that others won
   */
  private async readBack(sending: Sending, unknownOutcome: unknown): Promise<ReadEach> {
    const documents: Document[] = []
    const unreadable: Unreadable[] = []
    let error = unknownOutcome
    let left = sending.ids
    let atOnce = left.length
    for (let retry = 0; left.length > 0; ) {
      this.options.onRetry?.(error)
      await sleep(retryPauseMs(retry))
      if (this.options.isOver?.()) throw error
      try {
        while (left.length > 0) {
          const some = { ...sending, ids: left.slice(0, atOnce) }
          const read = await this.wonOf(some, { readConcern: { level: 'majority' } })
          documents.push(...read.documents)
          unreadable.push(...read.unreadable)
          left = left.slice(atOnce)
        }
      } catch (failure) {
        if (isDefiniteRefusal(failure) || !isDatabaseError(failure)) throw failure
        error = failure
        retry += 1
        atOnce = Math.ceil(atOnce / 2)
      }
    }
    if (isOverTime(unknownOutcome)) await this.tellStuck(sending)
    if (documents.length + unreadable.length === 0) throw unknownOutcome
    return { documents, unreadable }
  }

  /**
   * Reports the document that blocked a command. A command writes one document after the other: in the order of `_id`, or as its
   * updates name them. It stopped at the first that is left.
   */
  private async tellStuck({ terms, ids, claims }: Sending): Promise<void> {
    const { collection, onStuck } = this.options
    const due = isDue({ ...terms, validUntil: undefined }) // only a question: these terms may be too old to write by
    const left = await idsOf(collection, { _id: { $in: ids as never[] }, $expr: due }, limitOf(terms))
    const keys = new Set(left.map(idKey))
    const isOneUpdate = claims.length === 1 && ids.length <= mostPerUpdate(collection)
    if (left.length > 0) onStuck?.(isOneUpdate ? left[0] : ids.find((id) => keys.has(idKey(id))))
  }

  /** Adds what was won, including what can't be read, so that it can be quarantined under its token. */
  private take({ documents, unreadable }: ReadEach, sending: Sending): void {
    const { claimed } = sending.taken
    const claimOf = new Map(sending.claims.map((claim) => [claim.token, claim]))
    for (const document of documents) {
      claimed.push(this.leased(document, claimOf.get(document['lockedBy'])!, sending))
    }
    for (const { id, lockedBy, error } of unreadable) {
      const lease = this.leased({ _id: id, fence: 0 }, claimOf.get(lockedBy)!, sending)
      claimed.push({ ...lease, unreadable: error })
    }
  }

  private leased(document: Document, claim: ClaimTokens, { terms, sentAtMs }: Sending): Claimed {
    const fence = Number(document['fence'])
    const lease = new Lease(document['_id'], claim, claim.token, fence, sentAtMs, terms.leaseMs, this.options.clock)
    return { document, lease }
  }
}
