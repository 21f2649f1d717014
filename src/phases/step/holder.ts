import type { Collection, Document } from 'mongodb'
import { ID_INDEX, idText, underClaimOf } from '../../lock/index.js'
import { brand } from '../../options/index.js'
import { requireStorable } from '../errors/storable.js'
import type { Step } from './step.js'

/** The condition of a step on its document besides the token: that its lease hasn't moved. Missing: no condition. */
export const LEASE_UNMOVED = Symbol.for('phaselock:lease-unmoved')

/** The error of a step that no longer has its document: nothing it does may count any more. Its outcome would be refused too. */
export class NoLongerHeld extends Error {
  override readonly name = 'NoLongerHeld'
  constructor(
    /** The name of the document's collection. */
    readonly collection: string,
    /** The document's `_id`. */
    readonly id: unknown,
  ) {
    super(`${collection} ${idText(id)} is no longer held by this step: its lease ended and another took the document`)
  }
}

/** A document as its handler got it. */
export type HeldDocument = {
  /** The `_id`, of any type. */
  readonly _id: unknown
  /** The token of this step's claim; without one nothing counts as held. */
  readonly lockedBy?: string
}
/** The part of a step that its Holder uses: a handler passes its `step`. */
export type RunningStep = Pick<Step<string, never>, 'fence' | 'signal' | 'leaseLeftMs'> & {
  /** @internal */
  readonly [LEASE_UNMOVED]?: Document
}

/**
 * One step's right to its document, as the effects of the step use it. Whoever takes a document away changes or removes its token. So "a token of
 * this claim is still there" means: no one has moved it on since. (A checkpoint changes the token, within the claim.) Only a legacy writer leaves the
 * token there: where there are any, the lease must not have moved either.
 */
export class Holder {
  /** The step's fence: pass it to outside systems that refuse lower ones. */
  readonly fence: number
  private readonly filter: Document

  constructor(
    private readonly collection: Collection<Document>,
    document: HeldDocument,
    private readonly step: RunningStep,
  ) {
    this.fence = step.fence
    this.filter = { _id: document._id, ...underClaimOf(document.lockedBy), ...step[LEASE_UNMOVED] }
  }

  /**
   * Asks the database if the document is still this step's, then the lease's own clock.
   * @throws NoLongerHeld
   */
  async assertHeld(): Promise<void> {
    const found = await this.collection.findOne(this.filter, { projection: { _id: 1 }, hint: ID_INDEX })
    if (!found || this.step.signal.aborted || this.step.leaseLeftMs() === 0) throw this.lost()
  }

  /**
   * Inserts a document elsewhere if this step still holds its own: one command, judged by the server when it runs. A write that was sent late, or
   * delayed on its way, inserts nothing. Repeated, it changes nothing.
   * @param into.collection the name of the collection that gets it
   * @param into.db another database of the same server
   * @throws InvalidOutcome for values that can't be stored as they are
   * @param whenExists the effect on a document with the same `_id`: it stays as it is unless an update says more
   */
  async insert(
    document: Document,
    into: { collection: string; db?: string },
    whenExists: 'keepExisting' | Document[] = 'keepExisting',
  ): Promise<void> {
    requireStorable(document, 'insert')
    const target = into.db === undefined ? into.collection : { db: into.db, coll: into.collection }
    const insertion = [
      { $match: this.filter },
      { $replaceWith: { $mergeObjects: [{ $literal: document }, { createdAt: '$$NOW' }] } },
      { $merge: { into: target, on: '_id', whenMatched: whenExists, whenNotMatched: 'insert' } },
    ]
    await this.collection.aggregate(insertion, { hint: ID_INDEX }).toArray()
  }

  /**
   * Sets fields of the held document in the middle of a step.
   * @throws NoLongerHeld when nothing was set, InvalidOutcome as `insert` does
   */
  async set(fields: Document): Promise<void> {
    requireStorable(fields)
    const { matchedCount } = await this.collection.updateOne(this.filter, { $set: fields }, { hint: ID_INDEX })
    if (matchedCount === 0) throw this.lost()
  }

  /** The error to throw when something outside shows that the step has lost its document. */
  lost(): NoLongerHeld {
    return new NoLongerHeld(this.collection.collectionName, this.filter['_id'])
  }
}

brand({ NoLongerHeld })

/** The method of a running step that {@link comesAt} asks. */
export const COMES_AT = Symbol.for('phaselock:comes-at')

/**
 * When a time of the server's counts as come for a running step, as it does for deadlines: later than that time while a forward step of the server's
 * clock isn't confirmed.
 */
export function comesAt(step: object, time: Date): Date {
  const { [COMES_AT]: judged } = step as { [COMES_AT]?(time: Date): Date }
  return judged ? judged.call(step, time) : time
}
