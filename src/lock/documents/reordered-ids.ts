import type { Document, Filter } from 'mongodb'
import { literal } from '../terms/terms.js'

/*
 * An `_id` may be a document, whose fields have an order: { b: 1, '1': 2 } and { '1': 2, b: 1 } are two. An object of JavaScript's has
 * names that are whole numbers first, so the driver reads the first one as the second, and no command of ours that names it
 * matches it. Here it is matched field by field.
 */

const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype

/** Whether an `_id` may stand in the database with its fields in another order than it was read with. */
export function mayBeReordered(id: unknown): boolean {
  if (Array.isArray(id)) return id.some(mayBeReordered)
  if (!isPlain(id)) return false
  const names = Object.keys(id)
  return (names.length > 1 && names.some((name) => /^\d+$/.test(name))) || Object.values(id).some(mayBeReordered)
}

/** Each is a comparison for every document looked at; the others come next time. */
const MOST = 100

/**
 * Documents by their `_id`s, those too that the driver reads as one of these (of the first {@link MOST} that may be). Where there are
 * such, all `_id`s that are documents are looked at.
 */
export function withIds(ids: readonly unknown[]): Filter<Document> {
  const named = { _id: { $in: ids as never[] } }
  const odd = ids.filter(mayBeReordered).slice(0, MOST)
  if (odd.length === 0) return named
  return { $or: [named, { _id: { $type: 'object' }, $expr: { $or: odd.map(isReadAs) } }] }
}

/** An expression: the document's `_id` is another than this one, and the driver reads it as this one. */
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
