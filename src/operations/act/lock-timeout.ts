import { learnSharding } from '../../database/index.js'
import {
  changeLockTimeout,
  encodeSleepsAnew,
  isLockTimeout,
  type LockTimeoutChange,
  termsOf,
} from '../../lock/index.js'
import type { AuditedEnd } from '../../phases/index.js'
import { durationMs, formatMs, InvalidDuration } from '../../time/index.js'
import { recorded } from '../system/audit.js'
import { NotFound, Refused, UsageError } from '../system/errors.js'
import { modelOf, type System } from '../system/system.js'

/** The result of a request for another lockTimeout. */
export type LockTimeoutSet = Extract<LockTimeoutChange, { kind: 'changed' | 'unchanged' }> & {
  readonly lifecycle: string
  readonly lockTimeoutMs: number
  /**
   * The number of sleeping documents that were re-encoded: otherwise a longer lockTimeout would make them sleep longer by the difference.
   */
  readonly sleepsEncodedAnew: number
}

/**
 * Changes the lockTimeout of a lifecycle while replicas run.
 * @param lockTimeout from `1s` to `24h`
 * @example await setLockTimeout(system, 'order', '1m') // { kind: 'changed', wasMs: 30_000, inForceFrom, now, lockTimeoutMs: 60_000, ... }
 * @throws UsageError, nothing was changed; NotFound before a replica has run it; Refused while another change is under way
 */
export async function setLockTimeout(system: System, lifecycle: string, lockTimeout: string): Promise<LockTimeoutSet> {
  const ms = lockTimeoutFrom(lockTimeout)
  const model = modelOf(system, lifecycle)
  const about = { action: 'set-lock-timeout', lifecycle, target: lifecycle }
  const change = await recorded(system, about, () => changeLockTimeout(system.db, lifecycle, ms), endOf(ms))
  if (change.kind === 'notRegistered') {
    throw new NotFound(
      `no replica of ${lifecycle} has run in this database yet: set lockTimeout in its definition, and the first replica registers it`,
      { reason: 'noLifecycle', name: lifecycle },
    )
  }
  if (change.kind === 'underWay') {
    const { until, now } = change
    throw new Refused(
      `the lockTimeout of ${lifecycle} is already being changed, until ${until.toISOString()}`,
      { reason: 'changeUnderWay', lifecycle, until },
      `try again in ${formatMs(until.getTime() - now.getTime())}`,
    )
  }
  const wasShorter = change.kind === 'changed' && ms > change.wasMs
  const { progress, legacyWriters } = model.settings
  const terms = termsOf(ms, { progress, legacyWriters })
  let sleepsEncodedAnew = 0
  if (wasShorter) {
    await learnSharding(system.db, [model.collection])
    const documents = system.db.collection(model.collection)
    sleepsEncodedAnew = await encodeSleepsAnew(documents, terms, [...model.phases.keys()], change.wasMs)
  }
  return { lifecycle, lockTimeoutMs: ms, ...change, sleepsEncodedAnew }
}

const endOf =
  (ms: number) =>
  ({ kind }: { readonly kind: string }): AuditedEnd => {
    if (kind === 'changed') return { outcome: 'done', after: { lockTimeoutMs: ms } }
    return kind === 'unchanged' ? { outcome: 'unchanged' } : { outcome: 'refused', problem: kind }
  }

function lockTimeoutFrom(text: string): number {
  try {
    const ms = durationMs(text)
    if (isLockTimeout(ms)) return ms
  } catch (error) {
    if (!(error instanceof InvalidDuration)) throw error
  }
  throw new UsageError(`expected a lockTimeout from 1s to 24h, such as 45s or 2m, got '${text}'; nothing was changed`, {
    reason: 'invalidDuration',
    got: text,
  })
}
