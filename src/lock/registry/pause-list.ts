import type { Document } from 'mongodb'
import { arrayAt, isDate, literal } from '../terms/terms.js'
import { MOST_PAUSES, ownerExpression, type Resuming } from './pauses.js'

/*
 * The pauses of something that has a document of its own, a limit or a schedule. `paused` is the pause that lasts longest, which alone is judged by what
 * begins work, also in earlier versions; `pauses` are all, one for each person, and count only while `paused` is one of them: else a person, or an
 * earlier version, has written `paused` since, and means that one alone.
 * Invariant: as for those of lifecycles (pauses.ts), nobody's pause ends or changes because of what somebody else asks for.
 */

const isOverFor = (ms: number): Document => ({
  $and: [isDate('$$this.until'), { $lte: ['$$this.until', { $subtract: ['$$NOW', ms] }] }],
})
/** Where nobody said who asked for it: null. */
const owner = { $ifNull: ['$$this.by', null] }

/**
 * The pauses in force, as an expression.
 * @param written those that `paused` means where it isn't an object
 * @param overMs also those that have been over for no longer than this
 */
export function pausesBeside(written: Document | readonly Document[], overMs = 0): Document {
  const alone = { $cond: [{ $eq: [{ $type: '$paused' }, 'object'] }, ['$paused'], written] }
  const all = arrayAt('$pauses')
  return {
    $filter: { input: { $cond: [{ $in: ['$paused', all] }, all, alone] }, cond: { $not: [isOverFor(overMs)] } },
  }
}

/** Pauses but for those of one owner. */
export const pausesOfOthers = (pauses: Document, by: string | null): Document => ({
  $filter: { input: pauses, cond: { $ne: [owner, literal(by)] } },
})

/**
 * Pauses with one more, in place of its owner's earlier one; with {@link MOST_PAUSES} of others they stay as they are.
 * @param pause as an expression, but for its owner
 * @param kept pauses that stay beside it while there is room: by default those in force
 */
export function withPause(pauses: Document, by: string | null, pause: Document, kept = pauses): Document {
  const added = by === null ? pause : { $mergeObjects: [pause, { by: literal(by) }] }
  const beside = (some: Document, otherwise: Document): Document => {
    const others = pausesOfOthers(some, by)
    return { $cond: [{ $lt: [{ $size: others }, MOST_PAUSES] }, { $concatArrays: [others, [added]] }, otherwise] }
  }
  return kept === pauses ? beside(pauses, pauses) : beside(kept, beside(pauses, pauses))
}

/** Pauses without the one that is meant, if it is among those in force. @param kept pauses that stay: by default those in force */
export const withoutPause = (pauses: Document, whose: Resuming, kept = pauses): Document => ({
  $let: {
    vars: { meant: { $ifNull: [ownerExpression(pauses, whose), null] } },
    in: { $filter: { input: kept, cond: { $ne: [owner, '$$meant'] } } },
  },
})

/** The pause that lasts longest: one without an end for ever. */
const longest: Document = {
  $reduce: {
    input: '$pauses',
    initialValue: { $first: '$pauses' },
    in: {
      $cond: [
        {
          $and: [
            isDate('$$value.until'),
            { $or: [{ $not: [isDate('$$this.until')] }, { $gt: ['$$this.until', '$$value.until'] }] },
          ],
        },
        '$$this',
        '$$value',
      ],
    },
  },
}
const isNone: Document = { $eq: [{ $size: '$pauses' }, 0] }

/** The stages of an update that stores these pauses, and no others. */
export const storePauses = (pauses: Document): Document[] => [
  { $set: { pauses } },
  { $set: { paused: { $cond: [isNone, '$$REMOVE', longest] } } },
  { $set: { pauses: { $cond: [isNone, '$$REMOVE', '$pauses'] } } },
]
