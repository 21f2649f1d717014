import { ensureLockIndexes } from '../dist/lock/index.js'

/** The collection that all benchmarks work on. */
export const COLLECTION = 'Gateway'
export const STEPS = 6
/** The names of the steps: the first one of a phase has none. */
export const STEP_NAMES = [null, ...Array.from({ length: STEPS - 1 }, (_, i) => `s${i + 2}`)]

const INSERT_BATCH = 2_000

/** Documents as an owner writes them: `phase` and fields of its own. */
export const newDocuments = (count, extra = {}) =>
  Array.from({ length: count }, (_, i) => ({ phase: 'Creating', name: `gw${i}`, ...extra }))

/** Both indexes of the protocol: everybody works on the same collection. */
export async function prepareCollection(db, name = COLLECTION) {
  await ensureLockIndexes(db.collection(name))
}

/** Both indexes, then the documents. */
export async function fill(db, documents) {
  await prepareCollection(db)
  await insertAll(db, documents)
}

/** @param options `owner`: a lifecycle, attached to the database, that inserts instead of the driver */
export async function insertAll(db, documents, { owner, collection = COLLECTION } = {}) {
  for (let i = 0; i < documents.length; i += INSERT_BATCH) {
    const batch = documents.slice(i, i + INSERT_BATCH)
    await (owner ? owner.insertMany(batch) : db.collection(collection).insertMany(batch, { ordered: false }))
  }
}

/**
 * How many of the documents are not exactly what `steps` steps, each recorded once, make of them: in the last phase,
 * held by nobody, one history entry a step in the right order (none lost, none repeated) and each under a token of its
 * own; with data, the value that the last step stored.
 */
export async function countWrong(db, { count, steps = STEPS, withData = false }) {
  const history = '$progress.history'
  const right = [
    { $eq: [{ $size: history }, steps] },
    { $eq: [`${history}.step`, STEP_NAMES.slice(0, steps)] },
    { $eq: [{ $size: { $setUnion: [`${history}.by`] } }, steps] },
    ...(withData ? [{ $eq: ['$receipt', { $concat: ['$name', `/${steps}`] }] }] : []),
  ]
  const filter = { phase: 'Created', lockedBy: null, 'progress.history': { $type: 'array' }, $expr: { $and: right } }
  const [found] = await db
    .collection(COLLECTION)
    .aggregate([{ $match: filter }, { $count: 'right' }])
    .toArray()
  return count - (found?.right ?? 0)
}
