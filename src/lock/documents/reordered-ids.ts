import type { Document, Filter } from 'mongodb'
import { literal } from '../terms/terms.js'
import { isPlain } from './plain.js'

/*
 * An `_id` may be a document, whose fields have an order: { b: 1, '1': 2 } and { '1': 2, b: 1 } are different. JavaScript objects put
 * names that are whole numbers first, so the driver reads the first as the second, and no command of ours that names it matches. Here
 * it is matched field by field.
 */

/** True if an `_id` may be stored with its fields in another order than the one that was read. */
export function mayBeReordered(id: unknown): boolean {
  if (Array.isArray(id)) return id.some(mayBeReordered)
  if (!isPlain(id)) return false
  const names = Object.keys(id)
  return (names.length > 1 && names.some((name) => /^\d+$/.test(name))) || Object.values(id).some(mayBeReordered)
}

/** The limit of such `_id`s, because each is a comparison for every document that is read; the others are left for next time. */
const MOST = 100

/**
 * Matches documents by their `_id`s, including those that the driver reads as one of these (for the first {@link MOST} that may be
 * reordered). If there are any, all `_id`s that are documents are read.
 */
export function withIds(ids: readonly unknown[]): Filter<Document> {
  const named = { _id: { $in: ids as never[] } }
  const odd = ids.filter(mayBeReordered).slice(0, MOST)
  if (odd.length === 0) return named
  return { $or: [named, { _id: { $type: 'object' }, $expr: { $or: odd.map(isReadAs) } }] }
}

/** An expression: the document's `_id` differs from this one, but the driver reads it as this one. */
export const isReadAs = (id: unknown): Document => ({ $and: [{ $ne: ['$_id', literal(id)] }, hasFieldsOf('$_id', id)] })

function hasFieldsOf(found: unknown, wanted: unknown): Document {
  if (!mayBeReordered(wanted)) return { $eq: [found, literal(wanted)] }
  if (Array.isArray(wanted)) {
    const list = { $cond: [{ $isArray: [found] }, found, []] }
    const same = wanted.map((one, i) => hasFieldsOf({ $arrayElemAt: [list, i] }, one))
    return { $and: [{ $eq: [{ $size: list }, wanted.length] }, ...same] }
  }
  const fields = { $objectToArray: { $cond: [{ $eq: [{ $type: found }, 'object'] }, found, {}] } }
  const names = { $map: { input: fields, in: '$$this.k' } }
  const same = Object.entries(wanted as Document).map(([name, one]) =>
    hasFieldsOf({ $getField: { field: literal(name), input: found } }, one),
  )
  return { $and: [{ $setEquals: [names, literal(Object.keys(wanted as Document))] }, ...same] }
}
