import type { Collection } from 'mongodb'
import { CLAIM_INDEX, ID_INDEX, PARKED_AT } from './constants.js'
import { idKey } from './id-key.js'
import { isDue, literal, type Terms } from './terms.js'

const SUSPICIOUS_MISSES = 5
const MOST = 1_000

/**
 * Tells documents that others were quicker to claim from those that no command of this process can match, because the
 * driver doesn't send their `_id` as it stands: of `{ b: 1, '1': 2 }` JavaScript puts the 1 first. They would stand first in
 * every look for ever, so they are put aside (`lockedAt` = 9999-12-31).
 */
export class MissedIds {
  private misses = new Map<string, number>()

  constructor(private readonly collection: Collection) {}

  /** Whether a claim didn't get it lately. */
  has(id: unknown): boolean {
    return this.misses.size > 0 && this.misses.has(idKey(id))
  }

  /** To be told of candidates that a claim didn't get; returns those among them that were put aside. */
  async putAside(terms: Terms, phase: string, ids: readonly unknown[]): Promise<unknown[]> {
    if (this.misses.size > MOST) this.misses.clear()
    const suspicious = ids.filter((id) => {
      const key = idKey(id)
      const misses = (this.misses.get(key) ?? 0) + 1
      this.misses.set(key, misses)
      return misses >= SUSPICIOUS_MISSES
    })
    const isDocument = (id: unknown) => Object.getPrototypeOf(id ?? 0) === Object.prototype
    const aside: unknown[] = []
    for (const id of suspicious) {
      this.misses.delete(idKey(id))
      if (isDocument(id) && (await this.putAsideUnmatched(terms, phase, id))) aside.push(id)
    }
    return aside
  }

  /** The one whose `_id` has the same fields in another order, where none has them in this one. */
  private async putAsideUnmatched(terms: Terms, phase: string, id: unknown): Promise<boolean> {
    const sameOrder = await this.collection.findOne({ _id: id as never }, { projection: { _id: 1 }, hint: ID_INDEX })
    if (sameOrder) return false
    const hasItsFields = { $setEquals: [{ $objectToArray: '$_id' }, { $objectToArray: literal(id) }] }
    const { matchedCount } = await this.collection.updateMany(
      { phase, _id: { $type: 'object' }, $expr: { $and: [isDue(terms), hasItsFields] } },
      { $set: { lockedAt: PARKED_AT } },
      { hint: CLAIM_INDEX },
    )
    return matchedCount > 0
  }
}
