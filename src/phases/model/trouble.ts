import type { Document } from 'mongodb'
import { isParked } from '../../lock/index.js'
import { CAUSE, type Cause, causeOfError } from '../errors/cause.js'
import type { LifecycleModel } from './model.js'

/** The trouble of a document: the error of its last step, or the reason why it is parked. */
export interface Trouble extends Cause {
  /** `park`: it waits for a person, or for another state. `error`: its step is tried again. */
  readonly kind: 'error' | 'park'
}

/** Parked without a stored reason: put aside, or by a hand in the database. */
const WITHOUT_REASON = { name: 'Parked', message: 'no reason is stored' }

/**
 * The trouble of a document as it is stored; undefined: it has none. For documents that an older version recorded, the cause is computed from the
 * stored error as it would be today. A stored text that no longer is one (a person may have put anything there) counts as absent. Reads `_id`,
 * `lockedAt` and the `error` of the lifecycle's progress field; pure, and never throws.
 * @example troubleOf(document, model)?.text // 'connect ECONNREFUSED #'
 */
export function troubleOf(document: Document, { settings }: Pick<LifecycleModel, 'settings'>): Trouble | undefined {
  const kind = isParked(document) ? 'park' : 'error'
  const stored: unknown = Object(document[settings.progress])['error']
  const error = typeof stored === 'object' && stored !== null ? (stored as Document) : undefined
  if (!error && kind === 'error') return undefined
  const { cause, text } = causeOfError(error ?? WITHOUT_REASON, document['_id'])
  const recorded: unknown = error?.['cause']
  return { cause: typeof recorded === 'string' && CAUSE.test(recorded) ? recorded : cause, kind, text }
}
