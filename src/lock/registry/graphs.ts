import type { Db, Document } from 'mongodb'
import { arrayAt, literal } from '../terms/terms.js'
import { lifecyclesOf } from './in-force.js'

/** A definition of a lifecycle that a replica has registered: by its digest, so that replicas need to name no more than that. */
export interface KnownGraph {
  readonly graph: string
  /** When a replica with it first started, since there was room for it. */
  readonly at: Date
  /** The definition, as it is stored in the entry of `phaselock.lifecycles`. */
  readonly of: Document
}

/** The most definitions of one lifecycle, the newest ones: the entry is read with each look. */
const MOST_GRAPHS = 10
/** A definition that is longer isn't kept: replicas still name its digest. */
const MOST_BYTES = 50_000

/** Keeps a definition for comparisons, unless it is kept already. */
export async function keepGraph(db: Db, name: string, graph: string, definition: Document): Promise<void> {
  if (JSON.stringify(definition).length > MOST_BYTES) return
  const others = { $filter: { input: arrayAt('$graphs'), cond: { $ne: ['$$this.graph', graph] } } }
  const graphs = {
    $slice: [{ $concatArrays: [others, [{ graph, at: '$$NOW', of: literal(definition) }]] }, -MOST_GRAPHS],
  }
  await lifecyclesOf(db).updateOne({ _id: name, 'graphs.graph': { $ne: graph } }, [{ $set: { graphs } }])
}

/** Reads those that are kept, oldest first. A person may have put anything there. */
export const graphsIn = (stored: unknown): KnownGraph[] =>
  Array.isArray(stored)
    ? stored.filter(
        (one): one is KnownGraph =>
          typeof one?.graph === 'string' && one.at instanceof Date && typeof one.of === 'object' && one.of !== null,
      )
    : []
