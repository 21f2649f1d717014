import type { Collection, Document } from 'mongodb'
import { type Terms, termsOf } from '../../src/lock/index.js'
import { LOCK_TIMEOUT_MS } from '../lock/fixture.js'

/** Of a lifecycle that knows of such writers, and of one that doesn't. */
export const TERMS: Terms = termsOf(LOCK_TIMEOUT_MS, { legacyWriters: true })
export const BLIND: Terms = termsOf(LOCK_TIMEOUT_MS)

/** A task service of the old kind: it leases with `lockedAt` alone, by its own clock, and unlocks by `_id` and phase. */
export class LegacyWriter {
  constructor(
    private readonly collection: Collection<Document & { _id: string }>,
    private readonly lockTimeoutMs: number,
    private readonly clockAheadMs = 0,
  ) {}

  private now(): number {
    return Date.now() + this.clockAheadMs
  }

  /** The document's `_id`, and how long its lease lasts. */
  async findAndLock(phase: string): Promise<{ id: string; until: number } | undefined> {
    const now = this.now()
    const document = await this.collection.findOneAndUpdate(
      { phase, lockedAt: { $lt: new Date(now - this.lockTimeoutMs) } },
      { $set: { lockedAt: new Date(now) } },
      { sort: { lockedAt: 1, updatedAt: 1 }, returnDocument: 'after' },
    )
    return document ? { id: document._id, until: now + this.lockTimeoutMs - this.clockAheadMs } : undefined
  }

  async finish(id: string, phase: string, set: Document): Promise<void> {
    await this.collection.updateOne(
      { _id: id, phase },
      { $set: { ...set, lockedAt: new Date(0), updatedAt: new Date(this.now()) } },
    )
  }
}
