import type { Document } from 'mongodb'

/** A fence that `$toLong` accepts: it fails for NaN and values out of range, and with it the whole command. */
const isSane = {
  $and: [{ $isNumber: '$fence' }, { $gte: ['$fence', 0] }, { $lt: ['$fence', Number.MAX_SAFE_INTEGER] }],
}

const higher = { $add: [{ $toLong: '$fence' }, 1] }

/** The fence of a first claim, of a document that has no fence yet. */
export const firstFence: Document = { $multiply: [{ $toLong: '$$NOW' }, 1000] }

/**
 * The fence of a claim: the larger of the server's milliseconds x 1000 and the old fence + 1. So it also grows when the document was replaced, or
 * deleted and recreated (but not within the same millisecond, nor when the server's clock steps back after a replacement: docs/caveats.md). A
 * fence of another type or out of range is restarted from the clock. Always stored as a long that is a safe integer in JavaScript.
 *
 * The factor leaves room for 1,000 steps in a millisecond: without it, two steps in one millisecond and a replacement in the next would make the
 * fence go backwards.
 */
export const claimFence: Document = { $cond: [isSane, { $max: [firstFence, higher] }, firstFence] }

/**
 * The fence of the next step under the same lease: the old one + 1. The holder knows it without reading it back; the
 * factor of {@link claimFence} keeps it below the fence of any later claim (docs/decisions/0003).
 */
export const stepFence: Document = { $cond: [isSane, higher, firstFence] }
