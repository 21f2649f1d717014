import type { Collection } from 'mongodb'
import { readOwnFields } from '../documents/read-each.js'
import { withIds } from '../documents/reordered-ids.js'
import { hasOurShape, ID_INDEX, PARKED_AT, type Terms } from '../terms/terms.js'
import { CHECKED_FIELDS, type OddField, oddFields } from './odd-fields.js'

/** A document that was quarantined (lockedAt 9999-12-31) because its owner uses one of Phaselock's fields. */
export interface Quarantined {
  readonly id: unknown
  readonly fields: readonly OddField[]
}

/** Finds those of the documents that were quarantined by a write that judges their shape. It goes by that shape, because they carry no token. */
export async function quarantineAmong(
  collection: Collection,
  terms: Terms,
  ids: readonly unknown[],
): Promise<Quarantined[]> {
  const aside = { ...withIds(ids), lockedBy: null, lockedAt: PARKED_AT, $expr: { $not: [hasOurShape(terms)] } }
  const found = await readOwnFields((how) =>
    collection.find(aside, { projection: CHECKED_FIELDS, hint: ID_INDEX, ...how }).toArray(),
  )
  return found.map((document) => ({ id: document['_id'] as unknown, fields: oddFields(document) }))
}
