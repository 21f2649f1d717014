import type { Collection, Document, Filter } from 'mongodb'
import { PARKED_AT, TASK_LOCK_INIT_TIME } from '../lock/index.js'
import { checkOptions, t } from '../options/index.js'

const whatItTakes = t.object({
  collection: t.having(['updateMany'], "a collection of the driver (db.collection('Order'))"),
  ms: t.aNumber,
  filter: t.optional(t.having([], 'a filter')),
  progress: t.optional(t.text),
})
const PROGRESS_DATES = ['since', 'at', 'resumeAt', 'waitingSince']

/**
 * Lets time pass for documents: every date that Phaselock keeps on them moves back by `ms`, so that sleeps end, leases expire and
 * deadlines come, judged by the real server's real clock. Free and parked documents stay free and parked.
 * @returns the number of documents moved
 * @throws InvalidOptions
 */
export async function backDate(
  collection: Collection<Document>,
  ms: number,
  options: { filter?: Filter<Document>; progress?: string } = {},
): Promise<number> {
  checkOptions('backDate', whatItTakes, { ...options, collection, ms })
  const field = options.progress ?? 'progress'
  const progress = {
    $mergeObjects: [
      `$${field}`,
      {
        $arrayToObject: {
          $map: {
            input: {
              $filter: {
                input: { $objectToArray: `$${field}` },
                as: 'f',
                cond: { $and: [{ $in: ['$$f.k', PROGRESS_DATES] }, { $eq: [{ $type: '$$f.v' }, 'date'] }] },
              },
            },
            as: 'f',
            in: { k: '$$f.k', v: { $subtract: ['$$f.v', ms] } },
          },
        },
      },
    ],
  }
  const asked = movedWithin(`${field}.question`, ['askedAt', 'deadline'], ms)
  const left = movedWithin(`${field}.next`, ['at', 'lockedAt'], ms)
  const { modifiedCount } = await collection.updateMany(options.filter ?? {}, [
    {
      $set: {
        lockedAt: moved('lockedAt', ms),
        updatedAt: moved('updatedAt', ms),
        createdAt: moved('createdAt', ms),
        [field]: { $cond: [{ $eq: [{ $type: `$${field}` }, 'object'] }, progress, `$${field}`] },
      },
    },
    asked,
    movedWithin(`${field}.outbox`, ['dueAt'], ms),
    left,
  ])
  return modifiedCount
}

/** Does the same for dates of an object that a document may have. */
const movedWithin = (path: string, dates: readonly string[], ms: number): Document => ({
  $set: {
    [path]: {
      $cond: [
        { $eq: [{ $type: `$${path}` }, 'object'] },
        { $mergeObjects: [`$${path}`, Object.fromEntries(dates.map((date) => [date, moved(`${path}.${date}`, ms)]))] },
        '$$REMOVE',
      ],
    },
  },
})

/** Moves one date. A missing field stays missing: its own path as the value of a `$set` removes nothing and adds nothing. */
const moved = (field: string, ms: number): Document => ({
  $cond: [
    {
      $and: [
        { $eq: [{ $type: `$${field}` }, 'date'] },
        { $not: { $in: [`$${field}`, [TASK_LOCK_INIT_TIME, PARKED_AT]] } },
      ],
    },
    { $subtract: [`$${field}`, ms] },
    `$${field}`,
  ],
})
