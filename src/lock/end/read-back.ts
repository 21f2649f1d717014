import type { Collection, Document } from 'mongodb'
import { idKey } from '../documents/id-key.js'
import { readOwnFields } from '../documents/read-each.js'
import { isDefiniteRefusal } from '../documents/write-error.js'
import { isLeaseUnmoved } from '../lease/legacy-writers.js'
import { ID_INDEX } from '../terms/constants.js'
import type { Terms } from '../terms/terms.js'

/** What a document says about a write under `token` that may or may not have arrived. */
export type Trace =
  /** The token is still there: the write has not been executed, send it. */
  | 'notWritten'
  /** It was recorded: the next token stands there; or the write lets go, and `endedBy` names its token. */
  | 'written'
  /** Deleted, or others have gone on with it (also a writer of the old kind, which leaves the token there): whether it was recorded can't be told, and nothing is left to do. */
  | 'movedOn'

/**
 * `endedBy` says that *a* write under its token has let go. It proves only a write that lets go itself: one that sets a next token (a
 * checkpoint, `again`) leaves no document behind in which its own token could still end anything.
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

/** The documents of a write as the majority has them, by {@link idKey}; deleted ones are absent. */
export async function readBack(
  collection: Collection,
  terms: Terms,
  ids: readonly unknown[],
): Promise<Map<string, Document>> {
  const projection = {
    lockedBy: 1,
    [`${terms.progress}.endedBy`]: 1,
    ...(terms.legacyWriters ? { lockedAt: 1, [`${terms.progress}.lockedAt`]: 1 } : {}),
  }
  const options = { projection, readConcern: { level: 'majority' as const }, hint: ID_INDEX }
  try {
    const found = await readOwnFields((how) =>
      collection.find({ _id: { $in: ids as never[] } }, { ...options, ...how }).toArray(),
    )
    return new Map(found.map((document) => [idKey(document['_id']), document]))
  } catch (error) {
    // More ids than fit into a command (20 of 1 MB).
    if (ids.length === 1 || !isDefiniteRefusal(error)) throw error
    const middle = Math.ceil(ids.length / 2)
    const first = await readBack(collection, terms, ids.slice(0, middle))
    return new Map([...first, ...(await readBack(collection, terms, ids.slice(middle)))])
  }
}
