import type { Collection, Document, Filter } from 'mongodb'
import { readOwnFields } from '../documents/read-each.js'
import { withIds } from '../documents/reordered-ids.js'
import { updateApart } from '../documents/write-around.js'
import { onClaimIndex } from '../indexes/on-index.js'
import { isValidYet, TASK_LOCK_INIT_TIME, type Terms } from '../terms/terms.js'

/** The most documents of a phase that are read, and the most of them that are dated. */
const MOST = { read: 10_000, dated: 1_000 }
const PER_COMMAND = 100
/** The time limit of a command: an open transaction blocks a write of its documents, and nothing waits for it longer than this. */
const MOST_MS = 1_000

/** Matches documents that are free, never claimed, and without any date. A `createdAt` of another type is the owner's. */
const isUndated = (phase: string, { progress }: Pick<Terms, 'progress'>): Filter<Document> => ({
  ...{ phase, lockedAt: { $not: { $gt: TASK_LOCK_INIT_TIME } } },
  ...{ updatedAt: null, createdAt: null, [progress]: { $exists: false } },
  _id: { $not: { $type: 'objectId' } } as never,
})

/**
 * Writes the server's time as `createdAt` into undated documents of a phase. It is later than their insert, never earlier; and never by a forward
 * step of its clock that isn't confirmed. Documents that refuse the write stay undated.
 * @returns how many were dated
 */
export async function dateUndated(collection: Collection, terms: Terms, phase: string): Promise<number> {
  if (terms.hold) return 0
  const { _id: isOfAnotherKind, ...undated } = isUndated(phase, terms)
  const pipeline = [
    { $match: { phase, lockedAt: undated['lockedAt'], updatedAt: null } },
    { $limit: MOST.read },
    { $match: { ...undated, _id: isOfAnotherKind } },
    { $limit: MOST.dated },
    { $project: { _id: 1 } },
  ]
  const found = await onClaimIndex(collection, (hint) =>
    readOwnFields((how) => collection.aggregate(pipeline, { hint, maxTimeMS: MOST_MS, ...how }).toArray()),
  )
  if (found.length === 0) return 0
  const update = [{ $set: { createdAt: '$$NOW' } }]
  const isValid = isValidYet(terms)
  const now = isValid ? { $expr: isValid } : {}
  let dated = 0
  for (let from = 0; from < found.length; from += PER_COMMAND) {
    const some = found.slice(from, from + PER_COMMAND).map(({ _id: id }) => ({
      ...{ id: id as unknown, filter: { ...undated, ...now, ...withIds([id]) }, update },
    }))
    dated += (await updateApart(collection, some, { maxTimeMS: MOST_MS })).matched
  }
  return dated
}
