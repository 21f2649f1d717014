import { asOwner, type Done, doneTo, requireDone } from './as-owner.js'
import type { ConditionKind } from './condition.js'
import { type DocumentRef, findDocument } from './find.js'
import type { System } from './system.js'

/** `woken`: whether it slept; `was` says what it was doing. */
export interface Woken extends Done {
  readonly woken: boolean
  readonly was: ConditionKind
}

/**
 * Ends a document's sleep: it is due at once.
 * @example await wakeDocument(system, { id: 'shop' }) // { lifecycle: 'order', _id: 'shop', woken: true, was: 'sleeping' }
 * @throws NotFound, UsageError; Refused while it is held, being worked on already, or parked
 */
export async function wakeDocument(system: System, ref: DocumentRef): Promise<Woken> {
  const found = await findDocument(system, ref)
  const verdict = await asOwner(system, found.lifecycle, (owner) => owner.wake(found.document['_id']))
  // Neither parked nor asleep by its own fields: a legacy writer has it.
  requireDone(system, verdict === 'notParked' ? 'held' : verdict, found, 'woken')
  const was = found.condition.kind
  return { ...doneTo(found), woken: was === 'sleeping', was }
}
