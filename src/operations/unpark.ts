import { asOwner, type Done, doneTo, requireDone } from './as-owner.js'
import { type DocumentRef, findDocument } from './find.js'
import type { System } from './system.js'

export interface UnparkRequest {
  /** Who asks, for the document's history. */
  readonly by: string
  /** Also from a lease that is ahead of the server's clock: you vouch that its holder is gone. Default false. */
  readonly force?: boolean | undefined
}

/**
 * Gives a parked document another go, with its attempts and claims at 0.
 * @example await unparkDocument(system, { id: 'shop' }, { by: 'ticket-4711' }) // { lifecycle: 'order', _id: 'shop', by: 'ticket-4711' }
 * @throws NotFound, UsageError; Refused while it is held, or where it isn't parked
 */
export async function unparkDocument(
  system: System,
  ref: DocumentRef,
  { by, force = false }: UnparkRequest,
): Promise<Done & { readonly by: string }> {
  const found = await findDocument(system, ref)
  const verdict = await asOwner(system, found.lifecycle, (owner) => owner.unpark(found.document['_id'], { by, force }))
  requireDone(system, verdict, found, 'unparked')
  return { ...doneTo(found), by }
}
