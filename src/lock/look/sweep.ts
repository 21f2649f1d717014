import type { Collection, Document } from 'mongodb'
import { onClaimIndex } from '../documents/read.js'
import {
  dueBoundAt,
  dueSinceExpression,
  IS_PARKED,
  isDue,
  isUnleased,
  notAfter,
  PUT_TO_SLEEP,
} from '../lease/lease-state.js'
import { isAsking } from '../move/answers.js'
import { isDate, PARKED_AT, TASK_LOCK_INIT_TIME, type Terms } from '../terms/terms.js'

/** No count goes further than this. */
export const SWEEP_LIMIT = 10_000
/** The age at which a due document counts as overdue: no replica is about to take it. */
export const OVERDUE_MS = 60_000
/** Kinds of things that documents wait for; the others are counted together. */
const MOST_KINDS = 20
const MOST_MS = 10_000

/** The findings of a sweep in one lifecycle. Each number is at most {@link SWEEP_LIMIT}. */
export interface Swept {
  /** By phase: documents that have been due for over a minute, and that no replica has claimed. */
  readonly overdue: ReadonlyMap<string, number>
  /** Of these, those that were left by a holder whose lease has run out. */
  readonly orphans: number
  /** By the kind of thing that they wait for, as `on` says, most first; '-': it doesn't say; 'others': further kinds. */
  readonly waiting: ReadonlyMap<string, number>
  /** Documents that wait for an answer. */
  readonly asking: number
}

interface Counted {
  readonly _id: {
    /** The phase of overdue documents. */
    readonly phase: string | null
    readonly isLeft: boolean
    /** For those that sleep: true: they ask; text: the kind of thing that they wait for. */
    readonly on: string | true | null
  }
  readonly n: number
}

/**
 * Counts in the phases that have work, in one pass over their part of the claim index, which reads each document. If that comes to its limit,
 * overdue documents are counted for each phase and sleeping ones separately, so that one of them hides no other.
 */
export async function sweep(
  collection: Collection,
  terms: Terms,
  phases: readonly string[],
  now: Date,
): Promise<Swept> {
  const bound = new Date(dueBoundAt(now, terms.lockTimeoutMs).getTime() - OVERDUE_MS)
  const isLate = isOverdue(terms, bound, now)
  const by = {
    phase: { $cond: [isLate, '$phase', null] },
    isLeft: { $and: [isLate, { $eq: [{ $type: '$lockedBy' }, 'string'] }] },
    on: { $cond: [isAsleep(terms), { $cond: [isAsking(terms), true, kindOf(terms)] }, null] },
  }
  const count = (match: Document): Promise<Counted[]> =>
    onClaimIndex(collection, (hint) =>
      collection
        .aggregate<Counted>([{ $match: match }, { $limit: SWEEP_LIMIT }, { $group: { _id: by, n: { $sum: 1 } } }], {
          hint,
          maxTimeMS: MOST_MS,
        })
        .toArray(),
    )
  const sum = (all: readonly Counted[]) => all.reduce((total, { n }) => total + n, 0)
  let counted = await count({ phase: { $in: [...phases] }, ...notAfter(PARKED_AT) })
  if (sum(counted) >= SWEEP_LIMIT) {
    counted = await count({ phase: { $in: [...phases] }, ...PUT_TO_SLEEP, $expr: isAsleep(terms) })
    for (const phase of phases) counted.push(...(await count({ phase, ...notAfter(bound), $expr: isLate })))
  }
  const late = (phase: string) => sum(counted.filter(({ _id }) => _id.phase === phase))
  const waiting = counted.flatMap(({ _id: { on }, n }) => (typeof on === 'string' ? [[on, n] as const] : []))
  waiting.sort(([, one], [, other]) => other - one)
  const others = waiting.slice(MOST_KINDS).reduce((total, [, n]) => total + n, 0)
  return {
    overdue: new Map(phases.flatMap((phase) => (late(phase) > 0 ? [[phase, late(phase)] as const] : []))),
    orphans: sum(counted.filter(({ _id }) => _id.isLeft)),
    asking: sum(counted.filter(({ _id }) => _id.on === true)),
    waiting: new Map([...waiting.slice(0, MOST_KINDS), ...(others > 0 ? [['others', others] as const] : [])]),
  }
}

/** True for documents that match {@link PUT_TO_SLEEP} and aren't due yet. */
function isAsleep(terms: Terms): Document {
  const isLater = { $gt: ['$lockedAt', TASK_LOCK_INIT_TIME] }
  return { $and: [isUnleased, isDate('$lockedAt'), isLater, { $not: [IS_PARKED] }, { $not: [isDue(terms)] }] }
}

/** True for documents that have been due for a while. An undated one isn't counted. */
function isOverdue(terms: Terms, bound: Date, now: Date): Document {
  const since = { $ifNull: [dueSinceExpression(terms, now), now] }
  const isOld = { $lt: [since, new Date(now.getTime() - OVERDUE_MS)] }
  return { $and: [{ $lt: ['$lockedAt', bound] }, isDue(terms), isOld] }
}

/** The kind of thing that a waiting document waits for; null: it sleeps for another reason. */
function kindOf({ progress }: Terms): Document {
  const on = `$${progress}.waitingOn`
  const named = { $cond: [{ $eq: [{ $type: on }, 'string'] }, on, '-'] }
  return { $cond: [{ $eq: [{ $type: `$${progress}.waitingFor` }, 'string'] }, named, null] }
}
