import type { Collection, Db, Document } from 'mongodb'
import { updateMatching } from '../documents/write.js'
import { PUT_TO_SLEEP, sleepsFor } from '../lease/lease-state.js'
import { inProgress, type Terms } from '../terms/terms.js'
import {
  ANNOUNCED_WITHIN_MS,
  HAS_NO_LOCK_TIMEOUT,
  handoverUntil,
  type Judged,
  judge,
  LEAST_MS,
  type LockTimeoutRecord,
  lifecyclesOf,
  MOST_MS,
  readRecords,
  soundMs,
} from './in-force.js'

/** The result of a request to change a lockTimeout. */
export type LockTimeoutChange =
  | { readonly kind: 'changed'; readonly wasMs: number; readonly inForceFrom: Date; readonly now: Date }
  | { readonly kind: 'unchanged' }
  /** No replica has run this lifecycle yet. */
  | { readonly kind: 'notRegistered' }
  /** An earlier change isn't over. */
  | { readonly kind: 'underWay'; readonly until: Date; readonly now: Date }

/**
 * Gives an entry whose `lockTimeout` is unusable a stand-in, so that all replicas use the same: the value that was in force, from a replica that
 * knows it; else the setting of the first one to write.
 */
export async function standInForLockTimeout(
  db: Db,
  lifecycle: string,
  { inForceMs, settingMs }: { readonly inForceMs: number | undefined; readonly settingMs: number },
): Promise<void> {
  const ifMissing = { $nor: [{ lockTimeoutInstead: { $gte: LEAST_MS, $lte: MOST_MS } }] }
  await lifecyclesOf(db).updateOne(
    { _id: lifecycle, ...HAS_NO_LOCK_TIMEOUT, ...(inForceMs === undefined ? ifMissing : {}) },
    { $set: { lockTimeoutInstead: inForceMs ?? settingMs } } as Document,
  )
}

/**
 * Announces a new lockTimeout for a lifecycle; replicas hand over on their own (see {@link lockTimeoutAt}). One change at a time, because that
 * function knows only two values.
 */
export async function changeLockTimeout(db: Db, lifecycle: string, ms: number): Promise<LockTimeoutChange> {
  const [found] = await readRecords(db, [lifecycle])
  if (!found) return { kind: 'notRegistered' }
  const judged = judge(found, found.now)
  const until = judged?.change && handoverUntil(judged.lockTimeout, judged.change)
  if (until && found.now < until) return { kind: 'underWay', until, now: found.now }
  if (judged?.lockTimeout === ms && !judged.broken) return { kind: 'unchanged' }
  // No replica uses an entry without a usable value: one that sees it gives it a stand-in first.
  const wasMs = judged?.lockTimeout ?? ms
  const changed = await lifecyclesOf(db).findOneAndUpdate(
    { _id: lifecycle, ...unchanged(found, judged) },
    [{ $set: { lockTimeoutWas: wasMs, lockTimeout: ms, lockTimeoutSince: '$$NOW', lockTimeoutInstead: '$$REMOVE' } }],
    { returnDocument: 'after', maxTimeMS: ANNOUNCED_WITHIN_MS, projection: { lockTimeoutSince: 1 } },
  )
  if (!changed) return changeLockTimeout(db, lifecycle, ms)
  const since = changed['lockTimeoutSince'] as Date
  return { kind: 'changed', wasMs, inForceFrom: handoverUntil(ms, { wasMs, since }), now: since }
}

/** Matches if no one else has changed or mended it since. */
function unchanged({ lockTimeout, lockTimeoutSince }: LockTimeoutRecord, judged: Judged | undefined): Document {
  if (soundMs(lockTimeout) === undefined) return HAS_NO_LOCK_TIMEOUT
  return judged?.broken ? { lockTimeout } : { lockTimeout, lockTimeoutSince: lockTimeoutSince ?? null }
}

/**
 * Keeps the waking times of sleeping documents after a lockTimeout has become longer: else each would sleep longer by the difference. Only
 * documents that Phaselock put to sleep (`resumeAt` = `lockedAt` + the old lockTimeout) are touched.
 * @param terms with the new lockTimeout
 * @returns the number of documents that were changed
 */
export async function encodeSleepsAnew(
  collection: Collection,
  terms: Terms,
  phases: readonly string[],
  wasMs: number,
): Promise<number> {
  const resumeAt = inProgress(terms, 'resumeAt')
  const asleep = { phase: { $in: [...phases] }, ...PUT_TO_SLEEP, $expr: sleepsFor(terms, wasMs) }
  return updateMatching(collection, asleep, [{ $set: { lockedAt: { $subtract: [resumeAt, terms.lockTimeoutMs] } } }])
}
