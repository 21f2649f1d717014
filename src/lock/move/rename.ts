import type { Document, Filter } from 'mongodb'
import { withIds } from '../documents/reordered-ids.js'
import { historyWith } from '../end/history.js'
import { isNotHeld } from '../lease/lease-state.js'
import { hasOurShape, literal, type Terms } from '../terms/terms.js'

/** A phase that an older version of a lifecycle has, and what this one calls it. */
export interface Rename {
  readonly from: string
  readonly to: string
}

/** What a look for a rename's documents asks. It reads a key for each document in the old phase that a replica of the older version holds. */
export function renameLook(terms: Terms, rename: Rename): Filter<Document> {
  return { phase: { $eq: rename.from, $not: { $type: 'array' } }, ...isNotHeld(terms) }
}

/**
 * The filter and update of a rename on some of the documents that a look found. A document that a replica of the older version
 * holds is never touched: it ends its step as that version says. Nothing but the phase's name changes: a sleep, a park, its
 * step and its deadline go on; `lockedBy` of an expired holder is removed, so that its late write doesn't match.
 */
export function renameUpdate(terms: Terms, rename: Rename, ids: readonly unknown[]): [Filter<Document>, Document[]] {
  const history = historyWith(terms, {
    outcome: 'rule',
    step: null,
    reason: `${rename.from} is called ${rename.to} now`,
    by: 'renamed',
    to: rename.to,
    ms: 0,
  })
  return [
    { $and: [withIds(ids), renameLook(terms, rename)] },
    [
      {
        $set: {
          phase: literal(rename.to),
          lockedBy: '$$REMOVE',
          [terms.progress]: {
            $cond: [hasOurShape(terms), { $mergeObjects: [`$${terms.progress}`, { history }] }, `$${terms.progress}`],
          },
        },
      },
    ],
  ]
}
