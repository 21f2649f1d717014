/**
 * The floor: what somebody would write by hand who knows the engine well, for exactly this job and nothing else.
 * Batches of ids, one conditional `updateMany` that claims them under one claim id, a read of those won, then one
 * `updateMany` a step for the whole batch, conditional on the claim id. No renewal, no token per step, no read-back, no
 * handler, no second phase, no waiting.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { protocolCollection } from '../dist/database/index.js'
import { CLAIM_INDEX, ID_INDEX, TASK_LOCK_INIT_TIME } from '../dist/lock/index.js'
import { COLLECTION, STEP_NAMES } from './workload.mjs'

/** Documents in a batch, and batches on their way at once. */
export const FLOOR_BATCH = 500
export const FLOOR_LANES = 2
const LOCK_TIMEOUT_MS = 30_000
/** It has no doorbell: where documents are still to come it looks again so soon. */
const LOOK_AGAIN_MS = 5

const due = { $expr: { $lt: ['$lockedAt', { $subtract: ['$$NOW', LOCK_TIMEOUT_MS] }] } }
const higherFence = { $max: [{ $add: [{ $ifNull: ['$fence', 0] }, 1] }, { $toLong: '$$NOW' }] }

const oneMoreEntry = (outcome, step, by) => ({
  'progress.history': {
    $slice: [
      {
        $concatArrays: [
          { $ifNull: ['$progress.history', []] },
          [{ at: '$$NOW', from: '$phase', outcome, step: { $literal: step }, by, ms: 1 }],
        ],
      },
      -20,
    ],
  },
})

function stepUpdate(index, steps, claimId) {
  const isLast = index === steps - 1
  const entry = oneMoreEntry(isLast ? 'moveTo' : 'again', STEP_NAMES[index], `${claimId}.${index}`)
  return isLast
    ? { phase: 'Created', lockedAt: TASK_LOCK_INIT_TIME, lockedBy: '$$REMOVE', updatedAt: '$$NOW', ...entry }
    : { lockedAt: '$$NOW', updatedAt: '$$NOW', fence: higherFence, 'progress.step': STEP_NAMES[index + 1], ...entry }
}

/**
 * Takes every due document through `steps` recorded steps, until none is due, or with `until`, until so many documents are
 * done; returns how many steps the server has matched.
 */
export async function runFloor(db, { steps, until = 0, claimer = 0, batch = FLOOR_BATCH, lanes = FLOOR_LANES }) {
  const collection = protocolCollection(db, COLLECTION)
  let claims = 0
  let recorded = 0
  const lane = async () => {
    for (;;) {
      const found = await collection
        .find({ phase: 'Creating', ...due }, { projection: { _id: 1 }, hint: CLAIM_INDEX })
        .sort({ lockedAt: 1, updatedAt: 1 })
        .limit(batch)
        .toArray()
      if (found.length === 0) {
        if (recorded >= until * steps) return
        await sleep(LOOK_AGAIN_MS)
        continue
      }
      claims += 1
      const claimId = `floor${claimer}#${claims}`
      const ids = found.map((document) => document._id)
      await collection.updateMany(
        { _id: { $in: ids }, phase: 'Creating', ...due },
        [{ $set: { lockedAt: '$$NOW', lockedBy: claimId, fence: higherFence } }],
        { hint: ID_INDEX },
      )
      const won = await collection.find({ _id: { $in: ids }, lockedBy: claimId }, { hint: ID_INDEX }).toArray()
      const mine = won.map((document) => document._id)
      for (let index = 0; index < steps && mine.length > 0; index += 1) {
        const { matchedCount } = await collection.updateMany(
          { _id: { $in: mine }, lockedBy: claimId },
          [{ $set: stepUpdate(index, steps, claimId) }],
          { hint: ID_INDEX },
        )
        recorded += matchedCount
      }
    }
  }
  await Promise.all(Array.from({ length: lanes }, lane))
  return recorded
}
