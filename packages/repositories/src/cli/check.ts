import type { Db } from 'mongodb'
import type { PackageCheck } from 'phaselock/tasks'
import { COLLECTIONS } from '../sync/documents.js'
import { Shown } from '../sync/show.js'
import { successAge } from '../sync/success-age.js'

const LISTED = 10_000

/** Reports repositories that wait for a person, whose last sync has failed, or that had no success for twice their interval. */
export const checkRepositories: PackageCheck = async (db) => {
  const now = await timeIn(db)
  const found = await new Shown(db).some({ phase: { $ne: 'Deleted' } }, LISTED)
  return found.flatMap(({ repository, sync, text }) => {
    const about = `repository ${repository._id}`
    if (sync?.status === 'failed')
      return [{ about, problem: text, advice: `phaselock repositories show ${repository._id}; then repositories sync` }]
    if (/^(creating|updating|parked): /.test(text))
      return [{ about, problem: text, advice: 'correct it with repositories().update(), or unpark it' }]
    const age = now && successAge(repository, now)
    if (!age || age.sinceMs <= 2 * age.intervalMs) return []
    const hours = (age.sinceMs / 3_600_000).toFixed(1)
    return [
      {
        about,
        problem: `no sync has succeeded for ${hours} h, more than twice its interval`,
        advice: `phaselock repositories show ${repository._id}`,
      },
    ]
  })
}

async function timeIn(db: Db): Promise<Date | undefined> {
  const pipeline = [{ $limit: 1 }, { $project: { now: '$$NOW' } }]
  const [found] = await db.collection(COLLECTIONS.repositories).aggregate<{ now: Date }>(pipeline).toArray()
  return found?.now
}
