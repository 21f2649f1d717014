import type { Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { systemClock } from '../../time/index.js'
import { isValid } from '../documents/values.js'
import { isDate, LIFECYCLES_COLLECTION } from '../terms/terms.js'

/*
 * A census is taken more often while somebody looks at it. Whoever looks leaves a stamp in the lifecycles' entries, which each replica reads
 * with its look anyway.
 */

/** What looks at a census: people, at a terminal or a console, or a program that collects metrics. */
export type CensusReader = 'people' | 'metrics'

/** The field of a lifecycle's entry in `phaselock.lifecycles` with the time of the last look, by reader. */
const LOOKED_AT = { people: 'lookedAt', metrics: 'scrapedAt' } as const satisfies Record<CensusReader, string>

/** The projection of {@link watchedBy}. */
export const WATCHED_FIELDS = { lookedAt: 1, scrapedAt: 1 } as const

/** A stamp that is younger needs no new one. */
const LOOK_EVERY_MS = 5_000
/** The time for which a look counts: a person's next one is seconds away, a scrape's a minute or two. */
const LOOK_COUNTS_MS = { people: 30_000, metrics: 180_000 } as const satisfies Record<CensusReader, number>
/** A stamp never waits for longer. */
const MOST_MS = 5_000

/** Who looks at a lifecycle's census at a time of the server's; people count first. A person may have put anything in the fields. */
export function watchedBy(record: Document, now: Date): CensusReader | undefined {
  const isRecent = (reader: CensusReader) => {
    const at = record[LOOKED_AT[reader]]
    return at instanceof Date && isValid(at) && Math.abs(now.getTime() - at.getTime()) < LOOK_COUNTS_MS[reader]
  }
  return (['people', 'metrics'] as const).find(isRecent)
}

const saidAtMs = new WeakMap<object, Map<string, number>>()

/**
 * Reports that somebody looks at the census, so that it is taken more often for a while. This process does that once in five seconds at most,
 * and writes only where no other has in that time.
 * @param reader what looks. Default: `people`
 * @throws the database's own errors; a role that only reads can't do this, and gets older censuses
 * @example await lookAtCensus(db) // the next census comes within seconds
 */
export async function lookAtCensus(db: Db, reader: CensusReader = 'people'): Promise<void> {
  const said = saidAtMs.get(db.client) ?? new Map<string, number>()
  saidAtMs.set(db.client, said)
  const key = `${reader} ${db.databaseName}`
  const nowMs = systemClock.monotonicMs()
  if (nowMs - (said.get(key) ?? Number.NEGATIVE_INFINITY) < LOOK_EVERY_MS) return
  said.set(key, nowMs)
  const field = LOOKED_AT[reader]
  const stamp = `$${field}`
  const isRecent = {
    $and: [
      isDate(stamp),
      { $gt: [stamp, { $subtract: ['$$NOW', LOOK_EVERY_MS] }] },
      { $lte: [stamp, { $add: ['$$NOW', LOOK_EVERY_MS] }] },
    ],
  }
  const update = [{ $set: { [field]: '$$NOW' } }]
  const lifecycles = protocolCollection(db, LIFECYCLES_COLLECTION)
  await lifecycles.updateMany({ $expr: { $not: [isRecent] } }, update, { maxTimeMS: MOST_MS })
}
