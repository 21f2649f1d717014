import type { Collection, Document } from 'mongodb'
import { ID_INDEX } from './constants.js'
import { idKey } from './id-key.js'
import { isLeaseUnmoved } from './legacy-writers.js'
import { AS_IT_STANDS } from './read-each.js'
import type { Terms } from './terms.js'

/** What a document says about a write under `token` that may or may not have arrived. */
export type Trace =
  /** The token is still there: the write has not been executed, send it. */
  | 'notWritten'
  /** The next token stands there, or `endedBy` names this one: it was recorded. */
  | 'written'
  /** Deleted, or others have gone on with it (also a writer of the old kind, which leaves the token there): whether it was recorded can't be told, and nothing is left to do. */
  | 'movedOn'

export function traceOf(
  document: Document | undefined,
  terms: Terms,
  write: { token: string; nextToken: string | null },
): Trace {
  if (!document) return 'movedOn'
  if (write.nextToken !== null && document['lockedBy'] === write.nextToken) return 'written'
  if (document[terms.progress]?.endedBy === write.token) return 'written'
  return document['lockedBy'] === write.token && isLeaseUnmoved(terms, document) ? 'notWritten' : 'movedOn'
}

/** The documents of a write as the majority has them, by {@link idKey}; deleted ones are absent. */
export async function readBack(
  collection: Collection,
  terms: Terms,
  ids: readonly unknown[],
): Promise<Map<string, Document>> {
  const documents = await collection
    .find(
      { _id: { $in: ids as never[] } },
      {
        projection: {
          lockedBy: 1,
          [`${terms.progress}.endedBy`]: 1,
          ...(terms.legacyWriters ? { lockedAt: 1, [`${terms.progress}.lockedAt`]: 1 } : {}),
        },
        readConcern: { level: 'majority' },
        hint: ID_INDEX,
        ...AS_IT_STANDS,
      },
    )
    .toArray()
  return new Map(documents.map((document) => [idKey(document['_id']), document]))
}
