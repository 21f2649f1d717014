import { type Collection, type Db, MongoServerError } from 'mongodb'
import type { AnyHandler } from '../../dist/phases/index.js'
import type { WrapHandler } from '../../dist/tasks/index.js'
import { type DocumentKey, documentKey } from '../proof/ledger.ts'
import type { StepNumber } from '../proof/observed-handlers.ts'

/** What it knows of a document: the newest effect that it has accepted. */
interface Received {
  readonly _id: DocumentKey
  readonly fence: number
  readonly number: number
  /** Effects that came after those of a later step, and yet with a fence that wasn't older. */
  readonly outOfOrder: number
  /** Effects with an older fence. */
  readonly refused: number
}

const DUPLICATE_KEY = 11000
const JOURNALED = { writeConcern: { w: 1, journal: true } } as const

/** Thrown into a handler whose effect came with an older fence than an effect before it. */
export class Refused extends Error {
  override readonly name = 'Refused'
  constructor(document: DocumentKey, fence: number) {
    super(`the receiver has seen a newer fence of ${document} than ${fence}`)
  }
}

/**
 * An outside system that handlers change: it knows nothing of leases and clocks, and refuses older fences. Its data is beside the ledger's,
 * out of the reach of most faults.
 */
export class Receiver {
  private readonly received: Collection<Received>

  constructor(db: Db) {
    this.received = db.collection<Received>('demo.receiver', JOURNALED)
  }

  /** Sent again it changes nothing. @throws Refused */
  async accept(document: DocumentKey, fence: number, number: number): Promise<void> {
    const isEarlier = { $lt: [number, { $ifNull: ['$number', number] }] }
    const outOfOrder = { $add: [{ $ifNull: ['$outOfOrder', 0] }, { $cond: [isEarlier, 1, 0] }] }
    const change = [{ $set: { outOfOrder, fence, number, refused: { $ifNull: ['$refused', 0] } } }]
    try {
      await this.received.updateOne({ _id: document, fence: { $lte: fence } }, change, { upsert: true })
    } catch (error) {
      if (!(error instanceof MongoServerError) || error.code !== DUPLICATE_KEY) throw error
      // It is there with a newer fence, or another has just brought it in.
      const older = { _id: document, fence: { $gt: fence } }
      const { matchedCount } = await this.received.updateOne(older, { $inc: { refused: 1 } })
      if (matchedCount > 0) throw new Refused(document, fence)
      await this.accept(document, fence, number)
    }
  }

  async totals(): Promise<{ outOfOrder: number; refused: number }> {
    const sums = { _id: null, outOfOrder: { $sum: '$outOfOrder' }, refused: { $sum: '$refused' } }
    const [found] = await this.received.aggregate([{ $group: sums }]).toArray()
    return { outOfOrder: found?.['outOfOrder'] ?? 0, refused: found?.['refused'] ?? 0 }
  }
}

/** Each step begins with an effect at the receiver. */
export const receivedHandlers =
  (receiver: Receiver, numberOf: StepNumber): WrapHandler =>
  (lifecycle, phase, handler) => {
    const received: AnyHandler = async (doc, step) => {
      const number = numberOf(lifecycle, phase, step.name, doc)
      await receiver.accept(documentKey(lifecycle, doc['_id']), step.fence, number)
      return handler(doc, step)
    }
    return received
  }
