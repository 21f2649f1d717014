import type { Document } from 'mongodb'
import { PARKED_AT, typeName } from '../../lock/index.js'
import type { LifecycleModel, Phase } from '../definition/lifecycle.js'

/** What a document is doing now, as its fields say it. */
export type Condition =
  /** A phase that the lifecycle doesn't have: never claimed, never changed. */
  | { readonly kind: 'unknownPhase'; readonly phase: string }
  /** A field that the protocol needs has a shape that it can't use. */
  | { readonly kind: 'broken'; readonly field: string; readonly found: string }
  | { readonly kind: 'parked' }
  /** `renewedAt`: when its lease was taken or last renewed. */
  | { readonly kind: 'held'; readonly by: string; readonly renewedAt: Date; readonly until: Date }
  | { readonly kind: 'sleeping'; readonly until: Date }
  /** `expired`: the holder whose lease has run out. `since`: undefined where the document doesn't tell. */
  | { readonly kind: 'due'; readonly expired: string | undefined; readonly since: Date | undefined }
  | { readonly kind: 'resting' }
  /** Final: removed then. */
  | { readonly kind: 'final'; readonly removedAt: Date | undefined }

export type ConditionKind = Condition['kind']

/**
 * What a document is doing.
 * @param serverNow the server's time, by which everything is judged
 * @param lockTimeoutMs the lockTimeout in force: leases and sleeps are encoded with it
 */
export function conditionOf(
  document: Document,
  model: LifecycleModel,
  serverNow: Date,
  lockTimeoutMs: number,
): Condition {
  const broken = brokenField(document, model)
  if (broken) return { kind: 'broken', ...broken }
  const phase = model.phases.get(document['phase'])
  if (!phase) return { kind: 'unknownPhase', phase: document['phase'] }
  const lockedAt: Date = document['lockedAt'] instanceof Date ? document['lockedAt'] : new Date(0)
  const lockedBy: string | undefined = document['lockedBy'] == null ? undefined : String(document['lockedBy'])
  if (lockedAt >= PARKED_AT) return { kind: 'parked' }
  const until = new Date(lockedAt.getTime() + lockTimeoutMs)
  // At equality a document is still held.
  if (until >= serverNow) {
    if (lockedBy !== undefined) return { kind: 'held', by: lockedBy, renewedAt: lockedAt, until }
    if (isLegacyLease(document, model, until)) return { kind: 'held', by: LEGACY_WRITER, renewedAt: lockedAt, until }
    if (phase.kind === 'final') return { kind: 'final', removedAt: until }
    return phase.kind === 'resting' ? { kind: 'resting' } : { kind: 'sleeping', until }
  }
  return whenDue(document, phase, lockedBy, until)
}

const LEGACY_WRITER = 'a writer of the old kind'

/** With `legacyWriters` only what says itself that it sleeps does. */
function isLegacyLease(document: Document, model: LifecycleModel, until: Date): boolean {
  const resumeAt: unknown = document[model.settings.progress]?.resumeAt
  return model.settings.legacyWriters && !(resumeAt instanceof Date && resumeAt.getTime() === until.getTime())
}

function whenDue(document: Document, phase: Phase, expired: string | undefined, until: Date): Condition {
  if (phase.kind === 'resting') return { kind: 'resting' }
  if (phase.kind === 'final') return { kind: 'final', removedAt: undefined }
  // Free: due since it was unlocked. Else since its sleep or lease ended.
  const isFree = !(document['lockedAt'] instanceof Date) || document['lockedAt'].getTime() <= 0
  const touched = document['updatedAt'] instanceof Date ? document['updatedAt'] : undefined
  return { kind: 'due', expired, since: isFree ? touched : until }
}

/** Of `lockedAt`: types that sort after dates, arrays, and dates that can't be read; claims may never find them. */
const NEVER_DUE = new Set([
  'an array',
  'a regular expression',
  'a Timestamp',
  'a MaxKey',
  'a DBRef',
  'a Code',
  'a date out of the range of JavaScript',
])

function brokenField(document: Document, model: LifecycleModel): { field: string; found: string } | undefined {
  const { progress } = model.settings
  const phase = typeName(document['phase'])
  if (phase !== 'a text') return { field: 'phase', found: phase }
  const ours = typeName(document[progress])
  if (!['an object', 'missing', 'null'].includes(ours)) return { field: progress, found: ours }
  const lockedAt = typeName(document['lockedAt'])
  if (NEVER_DUE.has(lockedAt)) return { field: 'lockedAt', found: lockedAt }
  const isParked = lockedAt === 'a date' && document['lockedAt'] >= PARKED_AT
  return isParked && document['lockedBy'] != null
    ? { field: 'lockedAt', found: `9999-12-31 under a lease of ${String(document['lockedBy'])}` }
    : undefined
}
