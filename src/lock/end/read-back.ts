import type { Collection, Document } from 'mongodb'
import { readOwnFields } from '../documents/read.js'
import { idKey } from '../documents/values.js'
import { isDefiniteRefusal } from '../documents/write.js'
import { isLeaseUnmoved } from '../lease/lease.js'
import { ID_INDEX, inProgress, type Terms } from '../terms/terms.js'

/** The evidence in a document about a write under `token` that may or may not have arrived. */
export type Trace =
  /** The token is still there: the write has not been executed, so send it. */
  | 'notWritten'
  /** It was recorded: the next token is there, or, for a write that lets go, `endedBy` names its token. */
  | 'written'
  /**
   * Deleted, or others (maybe a legacy writer, which leaves the token) went on with it: the write may or may not have been
   * recorded. Nothing to do.
   */
  | 'movedOn'

/**
 * Reads the evidence. `endedBy` says that *a* write under its token has let go. That proves only writes that let go themselves:
 * once a write that sets a next token (a checkpoint, `again`) is recorded, its own token can't end anything in that document any
 * more.
 */
export function traceOf(
  document: Document | undefined,
  terms: Terms,
  { token, nextToken }: { token: string; nextToken: string | null },
): Trace {
  if (!document) return 'movedOn'
  const { lockedBy } = document
  if (nextToken === null ? document[terms.progress]?.endedBy === token : lockedBy === nextToken) return 'written'
  return lockedBy === token && isLeaseUnmoved(terms, document) ? 'notWritten' : 'movedOn'
}

/** True if a document that was read back has a queued insert. */
export const hadPendingInsert = (document: Document | undefined): boolean =>
  document !== undefined && document[NEXT] !== 'missing'
const NEXT = 'typeOfNext'

/** Reads a write's documents as the majority has them, by {@link idKey}; deleted ones are absent. */
export async function readBack(
  collection: Collection,
  terms: Terms,
  ids: readonly unknown[],
): Promise<Map<string, Document>> {
  const projection = {
    lockedBy: 1,
    [`${terms.progress}.endedBy`]: 1,
    [NEXT]: { $type: inProgress(terms, 'next') },
    ...(terms.legacyWriters ? { lockedAt: 1, [`${terms.progress}.lockedAt`]: 1 } : {}),
  }
  const options = { projection, readConcern: { level: 'majority' as const }, hint: ID_INDEX }
  try {
    const found = await readOwnFields((how) =>
      collection.find({ _id: { $in: ids as never[] } }, { ...options, ...how }).toArray(),
    )
    return new Map(found.map((document) => [idKey(document['_id']), document]))
  } catch (error) {
    // More ids than fit in one command (20 of 1 MB).
    if (ids.length === 1 || !isDefiniteRefusal(error)) throw error
    const middle = Math.ceil(ids.length / 2)
    const first = await readBack(collection, terms, ids.slice(0, middle))
    return new Map([...first, ...(await readBack(collection, terms, ids.slice(middle)))])
  }
}
