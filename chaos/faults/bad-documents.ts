import { BSON, type Document, Long, MaxKey, ObjectId, Timestamp } from 'mongodb'

const LIMIT_BYTES = 16 * 1024 * 1024
const SHORT_OF_LIMIT_BYTES = 150

/** Fields that replace those of a sound new gateway. All sort before it in the order of claims, or have no place in that order. */
const VARIANTS: readonly ((id: ObjectId) => Document)[] = [
  () => ({ lockedAt: 'yesterday' }),
  () => ({ lockedAt: 4 }),
  () => ({ lockedAt: true }),
  () => ({ lockedAt: [new Date('2020-01-01'), 'x'] }),
  () => ({ lockedAt: new Timestamp({ t: 1, i: 1 }) }),
  () => ({ lockedAt: /never/ }),
  () => ({ lockedAt: new MaxKey() }),
  () => ({ lockedAt: new Date('+012000-01-01') }),
  () => ({ lockedAt: new Date('2200-01-01') }),
  () => ({ updatedAt: 'long ago' }),
  () => ({ updatedAt: [1, 2] }),
  () => ({ createdAt: { not: 'a date' } }),
  () => ({ fence: 'high' }),
  () => ({ fence: Long.MAX_VALUE }),
  () => ({ lockedBy: 17 }),
  () => ({ progress: 'about half' }),
  () => ({ progress: { percent: 40, at: 'noon' } }),
  () => ({ progress: [1] }),
  () => ({ phase: ['Creating', 'Created'] }),
  () => ({ phase: 7 }),
  () => ({ state: { wanted: 'Running' } }),
  nearlyTooLarge,
]

export const BAD_DOCUMENT_VARIANTS = VARIANTS.length

/** A gateway that isn't what Phaselock needs. */
export function badGateway(variant: number): Document & { _id: ObjectId } {
  const id = new ObjectId()
  return { ...sound(id), ...VARIANTS[variant % VARIANTS.length]!(id), _id: id }
}

const sound = (id: ObjectId): Document => ({ _id: id, phase: 'Creating', state: 'Running', round: 0 })

function nearlyTooLarge(id: ObjectId): Document {
  const empty = BSON.calculateObjectSize({ ...sound(id), filler: '' })
  return { filler: 'x'.repeat(LIMIT_BYTES - SHORT_OF_LIMIT_BYTES - empty) }
}
