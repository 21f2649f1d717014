import type { Collection, Document, IndexSpecification } from 'mongodb'
import { buildIndex } from '../database/index.js'
import type { Logger } from '../phases/index.js'

/** The index for a schedule's runs, the latest first: its history and its statistics. */
const HISTORY_INDEX = { schedule: 1, scheduledFor: -1 } as const satisfies IndexSpecification
export const HISTORY_INDEX_SORT = { scheduledFor: HISTORY_INDEX.scheduledFor } as const

/** A `$lookup` of a schedule's runs, the latest first. */
export const lookupRuns = (runs: string, as: string, pipeline: readonly Document[]): Document => ({
  $lookup: {
    from: runs,
    let: { schedule: '$_id' },
    pipeline: [{ $match: { $expr: { $eq: ['$schedule', '$$schedule'] } } }, { $sort: HISTORY_INDEX_SORT }, ...pipeline],
    as,
  },
})

/** Creates or checks the indexes of runs. Without the right to create them, only history and statistics are slower. */
export async function ensureRunIndexes(runs: Collection, how: 'create' | 'check', logger: Logger): Promise<void> {
  if (how === 'create') {
    await buildIndex(runs, HISTORY_INDEX, { waiting: (said) => logger.info(said) })
    return
  }
  const found = await runs.indexes().catch(() => [])
  if (found.some(({ key }) => JSON.stringify(key) === JSON.stringify(HISTORY_INDEX))) return
  logger.warn(
    `${runs.collectionName} has no index ${JSON.stringify(HISTORY_INDEX)}, so the history of schedules is slow to read; create it: db.getCollection('${runs.collectionName}').createIndex(${JSON.stringify(HISTORY_INDEX)})`,
  )
}
