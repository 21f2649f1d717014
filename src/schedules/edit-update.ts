import type { Document } from 'mongodb'
import { DUE_AND_NOBODYS } from '../lock/index.js'
import { MOST_EDITS, SCHEDULE_PHASES } from './decide.js'
import { type Edit, present } from './documents.js'

/** Whether anything was planned from the fields that are kept in `known`, as an expression. */
export const isPlanned = { $eq: [{ $type: '$known' }, 'object'] }
/** Of edits in a row the first one: from its `known` it was planned. */
export const SUPERSEDED: Document = {
  $ifNull: ['$superseded', { $cond: [isPlanned, { fields: '$known', at: '$$NOW' }, '$$REMOVE'] }],
}

/** Makes a schedule due, even one that a replica holds, and records who did what. */
export function anew(
  { by, edit }: { by: string | undefined; edit: Omit<Edit, 'at' | 'by'> },
  isDueNow = true,
): Document {
  const added = { $mergeObjects: [{ at: '$$NOW' }, { $literal: present({ ...edit, by }) }] }
  const edits = { $cond: [{ $isArray: '$edits' }, '$edits', []] }
  return {
    $set: {
      phase: { $cond: [{ $in: ['$phase', SCHEDULE_PHASES] }, '$phase', 'Active'] },
      ...(isDueNow ? DUE_AND_NOBODYS : {}),
      edits: { $slice: [{ $concatArrays: [edits, [added]] }, -MOST_EDITS] },
    },
  }
}
