import type { Collection, Document } from 'mongodb'
import { onClaimIndex } from '../indexes/on-index.js'
import { dueBoundAt, isDue, notAfter, PUT_TO_SLEEP } from '../lease/lease-state.js'
import { isAsking } from '../move/answers.js'
import { TASK_LOCK_INIT_TIME } from '../terms/constants.js'
import type { Terms } from '../terms/terms.js'

/** No count goes further than this. */
export const SWEEP_LIMIT = 10_000
/** What has been due for longer, nobody is about to take. */
export const OVERDUE_MS = 60_000
/** Kinds of things that documents wait for; the others are counted together. */
const MOST_KINDS = 20
const MOST_MS = 10_000

/** What a sweep has found in one lifecycle. Each number is at most {@link SWEEP_LIMIT}. */
export interface Swept {
  /** By phase: documents that have been due for over a minute, and that nobody has claimed. */
  readonly overdue: ReadonlyMap<string, number>
  /** Of these, those that were left by a holder whose lease has run out. */
  readonly orphans: number
  /** By the kind of thing that they wait for, as `on` says, most first; '-': it doesn't say; 'others': further kinds. */
  readonly waiting: ReadonlyMap<string, number>
  /** Documents that wait for an answer. */
  readonly asking: number
}

/** Counts in the phases that have work. It walks pieces of the claim index, and reads what sleeps, as far as the limit goes. */
export async function sweep(
  collection: Collection,
  terms: Terms,
  phases: readonly string[],
  now: Date,
): Promise<Swept> {
  const count = (match: Document, by: unknown, fields: Document = {}) =>
    onClaimIndex(collection, (hint) =>
      collection
        .aggregate<{ _id: unknown; n: number; left: number }>(
          [{ $match: match }, { $limit: SWEEP_LIMIT }, { $group: { _id: by, n: { $sum: 1 }, ...fields } }],
          { hint, maxTimeMS: MOST_MS },
        )
        .toArray(),
    )
  const overdue = new Map<string, number>()
  let orphans = 0
  for (const phase of phases) {
    const wasLeft = { left: { $sum: { $cond: [{ $eq: [{ $type: '$lockedBy' }, 'string'] }, 1, 0] } } }
    const [found] = await count({ phase, ...isOverdue(terms, now) }, null, wasLeft)
    if (found) overdue.set(phase, found.n)
    orphans += found?.left ?? 0
  }
  const asleep = { phase: { $in: [...phases] }, ...PUT_TO_SLEEP, $nor: [{ $expr: isDue(terms) }] }
  const kinds = await count(asleep, { $cond: [isAsking(terms), true, kindOf(terms)] })
  const waiting = kinds.flatMap(({ _id, n }) => (typeof _id === 'string' ? [[_id, n] as const] : []))
  waiting.sort(([, one], [, other]) => other - one)
  const others = waiting.slice(MOST_KINDS).reduce((sum, [, n]) => sum + n, 0)
  return {
    overdue,
    orphans,
    asking: kinds.find(({ _id }) => _id === true)?.n ?? 0,
    waiting: new Map([...waiting.slice(0, MOST_KINDS), ...(others > 0 ? [['others', others] as const] : [])]),
  }
}

/** Due since its sleep or lease has ended a while ago; one that is free, since it was last written. One that doesn't say when isn't counted. */
function isOverdue(terms: Terms, now: Date): Document {
  const bound = new Date(dueBoundAt(now, terms.lockTimeoutMs).getTime() - OVERDUE_MS)
  const ofId = { $cond: [{ $eq: [{ $type: '$_id' }, 'objectId'] }, { $toDate: '$_id' }, now] }
  const since = { $ifNull: ['$updatedAt', '$createdAt', ofId] }
  const isOld = { $lt: [since, new Date(now.getTime() - OVERDUE_MS)] }
  const isFree = { $lte: ['$lockedAt', TASK_LOCK_INIT_TIME] }
  return { ...notAfter(bound), $expr: { $and: [isDue(terms), { $cond: [isFree, isOld, true] }] } }
}

/** Of a document that waits: what for; null: it sleeps for another reason. */
function kindOf({ progress }: Terms): Document {
  const on = `$${progress}.waitingOn`
  const named = { $cond: [{ $eq: [{ $type: on }, 'string'] }, on, '-'] }
  return { $cond: [{ $eq: [{ $type: `$${progress}.waitingFor` }, 'string'] }, named, null] }
}
