import type { Collection, Document } from 'mongodb'
import { ID_INDEX } from './constants.js'
import { idKey } from './id-key.js'
import { leaseUnmoved } from './legacy-writers.js'
import { AS_IT_STANDS } from './read-each.js'
import { inProgress, type Terms } from './terms.js'
import { isDefiniteRefusal } from './write-error.js'

/** What a document says about a write under `token` that may or may not have arrived. */
export type Trace =
  /** The token is still there: the write has not been executed, send it. */
  | 'notWritten'
  /** It was recorded: the next token stands there; or the write lets go, and `endedBy` names its token. */
  | 'written'
  /** Deleted, or others have gone on with it (also a writer of the old kind, which leaves the token there): whether it was recorded can't be told, and nothing is left to do. */
  | 'movedOn'

/** What is read of a document to tell what became of a write. Never a value of another type than these: any owner's can be read. */
export interface Traces {
  readonly lockedBy: string | null
  readonly endedBy: string | null
  /** Beside writers of the old kind: whether nobody has moved `lockedAt`. */
  readonly isUnmoved: boolean
}

/**
 * `endedBy` says that *a* write under its token has let go. It proves only a write that lets go itself: one that sets a next token (a
 * checkpoint, `again`) leaves no document behind in which its own token could still end anything.
 */
export function traceOf(
  found: Traces | undefined,
  { token, nextToken }: { token: string; nextToken: string | null },
): Trace {
  if (!found) return 'movedOn'
  if (nextToken === null ? found.endedBy === token : found.lockedBy === nextToken) return 'written'
  return found.lockedBy === token && found.isUnmoved ? 'notWritten' : 'movedOn'
}

/** The documents of a write as the majority has them, by {@link idKey}; deleted ones are absent. */
export async function readBack(
  collection: Collection,
  terms: Terms,
  ids: readonly unknown[],
): Promise<Map<string, Traces>> {
  try {
    const found = await collection
      .find(
        { _id: { $in: ids as never[] } },
        { projection: projection(terms), readConcern: { level: 'majority' }, hint: ID_INDEX, ...AS_IT_STANDS },
      )
      .toArray()
    return new Map(found.map((document) => [idKey(document['_id']), document as unknown as Traces]))
  } catch (error) {
    // More ids than fit into a command (20 of 1 MB).
    if (ids.length === 1 || !isDefiniteRefusal(error)) throw error
    const middle = Math.ceil(ids.length / 2)
    const first = await readBack(collection, terms, ids.slice(0, middle))
    return new Map([...first, ...(await readBack(collection, terms, ids.slice(middle)))])
  }
}

/** Told by the server: an owner's value that no driver can read must not hide what became of the others. */
function projection(terms: Terms): Document {
  const text = (path: string) => ({ $cond: [{ $eq: [{ $type: path }, 'string'] }, path, null] })
  const { $expr: isUnmoved = true } = leaseUnmoved(terms)
  return {
    lockedBy: text('$lockedBy'),
    endedBy: text(inProgress(terms, 'endedBy')),
    isUnmoved: { $cond: [isUnmoved, true, false] },
  }
}
