import type { Document } from 'mongodb'
import type { LifecycleModel } from '../phases/index.js'
import { asOwner, type Done, type Force, nameOf } from './as-owner.js'
import { Refused, UsageError } from './errors.js'
import { requireKnownState } from './set-state.js'
import { modelOf, type System } from './system.js'

const DUPLICATE_KEY = 11_000

/**
 * Inserts a document; without a phase it starts in the first entry phase.
 * @param force even with a state that no rule names
 * @example await addDocument(system, 'order', { _id: 'shop' }) // { lifecycle: 'order', _id: 'shop', phase: 'Creating' }
 * @throws UsageError for fields of Phaselock's own; InvalidDocument; Refused where it exists already
 */
export async function addDocument(
  system: System,
  lifecycle: string,
  fields: Document,
  { force = false }: Force = {},
): Promise<Done & { readonly phase: string }> {
  const model = modelOf(system, lifecycle)
  const document: Document = { phase: model.entries[0], ...fields }
  requireOwnFields(model, document)
  if ('state' in document && !force) requireKnownState(model, document['state'])
  try {
    const _id = await asOwner(system, lifecycle, (owner) => owner.insert(document))
    return { lifecycle, _id, phase: document['phase'] }
  } catch (error) {
    const { code, message } = error as { code?: number; message?: string }
    if (code !== DUPLICATE_KEY) throw error
    throw new Refused(
      `${nameOf({ lifecycle, _id: document['_id'] })} was not added: it already exists, or a unique field is taken (${message})`,
      { reason: 'exists', lifecycle, id: document['_id'] },
    )
  }
}

function requireOwnFields({ settings }: LifecycleModel, document: Document): void {
  const fields = ['lockedBy', 'fence', settings.progress].filter((field) => field in document)
  if (fields.length > 0) {
    throw new UsageError(
      `expected the owner's own fields, got ${fields.join(', ')}: Phaselock writes these`,
      { reason: 'invalidField', fields },
      'leave them out',
    )
  }
  const { lockedAt = null } = document
  if (lockedAt !== null && !(lockedAt instanceof Date)) {
    throw new UsageError(
      `expected lockedAt to say when it is due, as a date such as {"$date": "2026-01-01T10:00:00Z"}, got ${JSON.stringify(lockedAt)}`,
      { reason: 'invalidField', fields: ['lockedAt'] },
      'leave it out to make it due at once',
    )
  }
}
