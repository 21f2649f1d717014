import type { Collection, Document } from 'mongodb'
import { literal } from '../terms/terms.js'

/** The interval at which a replica that ticks on its own says so in `replicas` of `phaselock.lifecycles`. */
export const PRESENT_EVERY_MS = 50_000
/** The time that it counts as live after that: one of its reports may be lost. */
const PRESENT_FOR_MS = 110_000

const known = { $cond: [{ $isArray: '$replicas' }, '$replicas', []] }
/** True for a recent report. One from the future, as after a step of the clock, doesn't count either: live replicas report again. */
const isRecent = {
  $and: [
    { $gt: ['$$this.seenAt', { $subtract: ['$$NOW', PRESENT_FOR_MS] }] },
    { $lt: ['$$this.seenAt', { $add: ['$$NOW', PRESENT_FOR_MS] }] },
  ],
}

/** A live replica of a lifecycle, as it is stored: a person may have put anything there. */
export interface PresentReplica {
  readonly name: string
  /** Those whose documents it takes now. Absent, or no list: all; a replica of an older version doesn't say. */
  readonly phases?: readonly string[]
  /** Of the package; absent: an older one doesn't say. */
  readonly version?: string
}

/** A lifecycle's live replicas, as an expression over its document. */
export const PRESENT_REPLICAS: Document = {
  $map: {
    input: { $filter: { input: known, cond: isRecent } },
    in: { name: '$$this.name', phases: '$$this.phases', version: '$$this.version' },
  },
}

/** The time when any of them was last seen, or last looked; in the future if the server's clock has stepped back since. */
export const LAST_SEEN: Document = { $max: ['$handledAt', { $max: { $map: { input: known, in: '$$this.seenAt' } } }] }

type Lifecycles = Collection<Document & { _id: string }>

/**
 * Reports that a replica looks after these lifecycles, and forgets those that haven't reported for long.
 * @param takes by lifecycle, the phases whose documents it takes now
 */
export async function sayPresent(
  lifecycles: Lifecycles,
  takes: ReadonlyMap<string, readonly string[]>,
  { name, version }: Pick<PresentReplica, 'name' | 'version'>,
): Promise<void> {
  const ids = [...takes.keys()]
  const others = { $filter: { input: known, cond: { $and: [isRecent, { $ne: ['$$this.name', literal(name)] }] } } }
  const phases = { $arrayElemAt: [literal([...takes.values()]), { $indexOfArray: [literal(ids), '$_id'] }] }
  const replicas = {
    $concatArrays: [
      others,
      [{ name: literal(name), seenAt: '$$NOW', phases, ...(version && { version: literal(version) }) }],
    ],
  }
  await lifecycles.updateMany({ _id: { $in: ids } }, [{ $set: { handledAt: '$$NOW', replicas } }])
}

/** Reports that a replica no longer does, so that its share goes to the others immediately. */
export async function sayGone(lifecycles: Lifecycles, ids: readonly string[], name: string): Promise<void> {
  await lifecycles.updateMany({ _id: { $in: [...ids] } }, { $pull: { replicas: { name } } } as Document)
}
