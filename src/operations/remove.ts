import { protocolCollection } from '../database/index.js'
import { removeUnlessHeld } from '../lock/index.js'
import { asOwner, type Done, doneTo, type Force, whyNot } from './as-owner.js'
import { type DocumentRef, findDocument, readDocuments } from './find.js'
import { modelOf, type System, termsInForce } from './system.js'

/**
 * Deletes a document outright: no handler runs, and what it has made stays. Usually you want `setState(..., 'Deleted')`.
 * @param force even while a replica holds it; what that replica does is then dropped
 * @example await removeDocument(system, { id: 'shop' }) // { lifecycle: 'order', _id: 'shop' }
 * @throws NotFound, UsageError; Refused while it is held
 */
export async function removeDocument(system: System, ref: DocumentRef, { force = false }: Force = {}): Promise<Done> {
  const found = await findDocument(system, ref)
  const model = modelOf(system, found.lifecycle)
  const terms = (await termsInForce(system.db, [model]))(model)
  const _id = found.document['_id'] as never
  const isRemoved = force
    ? (await asOwner(system, model.name, (owner) => owner.remove(_id))) === 'done'
    : await removeUnlessHeld(protocolCollection(system.db, model.collection), terms, _id)
  if (isRemoved) return doneTo(found)
  const [now] = await readDocuments(system, model, { _id }, 1)
  throw whyNot(system, now ? 'held' : 'notFound', now ?? found, 'removed without --force')
}
