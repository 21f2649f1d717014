import type { Document } from 'mongodb'
import { PARKED_AT } from './constants.js'
import { claimFence } from './fence.js'
import { leaseMark } from './legacy-writers.js'
import { countAt, hasOurShape, inProgress, isPastDate, literal, type Terms } from './terms.js'

/**
 * The update of a claim: the lease (`lockedAt`, `lockedBy`), a higher fence, one more in `progress.claims`, and what a
 * writer in any language may leave out (`createdAt`, `updatedAt`, `progress.since`). It keeps `progress.endedBy`: by it the
 * holder before finds out that its write was recorded.
 *
 * A document whose `progress` is the owner's, or whose `phase` is an array, only gets `lockedAt` = 9999-12-31, so that it
 * costs nothing from then on; everything else of it stays, and no `lockedBy` in the reply means: report it as broken.
 */
export function claimUpdate(terms: Terms, token: string): Document[] {
  const ours = hasOurShape(terms)
  const now = terms.protocol.now()
  const onlyOurs = (value: unknown, otherwise: unknown) => ({ $cond: [ours, value, otherwise] })
  return [
    {
      $set: {
        lockedAt: onlyOurs(now, PARKED_AT),
        lockedBy: onlyOurs(literal(token), '$$REMOVE'),
        fence: onlyOurs(claimFence(terms), '$fence'),
        createdAt: onlyOurs({ $ifNull: ['$createdAt', now] }, '$createdAt'),
        updatedAt: onlyOurs({ $ifNull: ['$updatedAt', now] }, '$updatedAt'),
        [terms.progress]: onlyOurs(claimedProgress(terms), `$${terms.progress}`),
      },
    },
  ]
}

function claimedProgress(terms: Terms): Document {
  const since = inProgress(terms, 'since')
  return {
    $mergeObjects: [
      `$${terms.progress}`,
      {
        since: { $cond: [isPastDate(terms, since), since, terms.protocol.now()] },
        claims: { $add: [countAt(inProgress(terms, 'claims')), 1] },
        attempts: countAt(inProgress(terms, 'attempts')),
        ...leaseMark(terms, terms.protocol.now()),
      },
    ],
  }
}
