import type { Document, Filter } from 'mongodb'
import { withIds } from '../documents/values.js'
import { isNotHeld } from '../lease/lease-state.js'
import { applyPendingInsertOfHolder } from '../record/pending-insert.js'
import { historyWith } from '../record/step-end.js'
import { literal, progressIfOurs, type Terms } from '../terms/terms.js'

/** A phase of an older version of a lifecycle, and its name in this version. */
export interface Rename {
  readonly from: string
  readonly to: string
}

/** The query of a look for a rename's documents. It reads one key per document in the old phase that an older version's replica holds. */
export function renameLook(terms: Terms, rename: Rename): Filter<Document> {
  return { phase: { $eq: rename.from, $not: { $type: 'array' } }, ...isNotHeld(terms) }
}

/**
 * A rename's filter and update for some of the documents that a look found. A document that a replica of the older version holds is never
 * touched: its step ends as in that version. Only the phase's name changes: a sleep, a park, its step and its deadline go on. An expired holder's
 * `lockedBy` is removed, so that its late write doesn't match, and a queued insert is applied.
 */
export function renameUpdate(terms: Terms, rename: Rename, ids: readonly unknown[]): [Filter<Document>, Document[]] {
  const reason = `${rename.from} is called ${rename.to} now`
  const history = historyWith(terms, { outcome: 'rule', reason, by: 'renamed', to: rename.to })
  const moved = {
    phase: literal(rename.to),
    ...progressIfOurs(terms, { $mergeObjects: [`$${terms.progress}`, { history }] }),
  }
  return [
    { ...withIds(ids), $and: [renameLook(terms, rename)] },
    [{ $set: moved }, applyPendingInsertOfHolder(terms), { $unset: 'lockedBy' }],
  ]
}
