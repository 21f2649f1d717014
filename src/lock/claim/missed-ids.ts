import type { Collection, Document, Filter } from 'mongodb'
import { idKey, isReadAs, mayBeReordered } from '../documents/values.js'
import { onClaimIndex } from '../indexes/on-index.js'
import { isDue } from '../lease/lease-state.js'
import { PARKED_AT, type Terms } from '../terms/terms.js'

const MOST = 1_000

/**
 * Separates documents that others claimed first from those that no holder can name, because the driver doesn't send their `_id` as
 * it is stored: of `{ b: 1, '1': 2 }` JavaScript puts the 1 first. They would come first in every look forever, so they are
 * quarantined (`lockedAt` = 9999-12-31). The server identifies them: one with the same fields in another order is another document,
 * and is left alone if it can be named.
 */
export class MissedIds {
  private readonly missed = new Set<string>()

  constructor(private readonly collection: Collection) {}

  /** True if a recent claim didn't get it. */
  has(id: unknown): boolean {
    return this.missed.size > 0 && this.missed.has(idKey(id))
  }

  /** Takes the candidates that a claim didn't get; returns those among them that were quarantined. */
  async quarantine(terms: Terms, phase: string, ids: readonly unknown[]): Promise<unknown[]> {
    if (this.missed.size > MOST) this.missed.clear()
    const aside: unknown[] = []
    for (const id of ids) {
      this.missed.add(idKey(id))
      if (mayBeReordered(id) && (await this.quarantineReordered(terms, phase, id))) aside.push(id)
    }
    return aside
  }

  private async quarantineReordered(terms: Terms, phase: string, id: unknown): Promise<boolean> {
    const filter: Filter<Document> = { phase, _id: { $type: 'object' }, $expr: { $and: [isDue(terms), isReadAs(id)] } }
    const { matchedCount } = await onClaimIndex(this.collection, (hint) =>
      this.collection.updateMany(filter, { $set: { lockedAt: PARKED_AT } }, { hint }),
    )
    return matchedCount > 0
  }
}
