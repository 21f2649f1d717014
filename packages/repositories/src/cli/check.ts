import type { Db } from 'mongodb'
import { Cron } from 'phaselock/schedules'
import { durationMs, type PackageCheck } from 'phaselock/tasks'
import { COLLECTIONS, type Repository } from '../sync/documents.js'
import { Shown } from '../sync/show.js'

const LISTED = 10_000

/** Reports repositories that wait for a person, whose last sync has failed, or that had no success for twice their interval. */
export const checkRepositories: PackageCheck = async (db) => {
  const now = await timeIn(db)
  const found = await new Shown(db).some({ phase: { $ne: 'Deleted' } }, LISTED)
  return found.flatMap(({ repository, sync, text }) => {
    const about = `repository ${repository._id}`
    if (sync?.status === 'failed')
      return [{ about, problem: text, advice: `phaselock repositories show ${repository._id}; then repositories sync` }]
    if (/^(creating|updating): /.test(text))
      return [{ about, problem: text, advice: 'correct it with repositories().update(), or unpark it' }]
    const interval = intervalMs(repository, now)
    const { synced, createdAt } = repository
    const from = synced?.at ?? createdAt
    const since = now && from ? now.getTime() - from.getTime() : 0
    if (interval === undefined || since <= 2 * interval) return []
    const hours = (since / 3_600_000).toFixed(1)
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

/** The time between two syncs of its schedule; undefined without a schedule. */
function intervalMs({ schedule, isActive = true }: Repository, now: Date | undefined): number | undefined {
  if (!schedule || !isActive || !now) return undefined
  try {
    if (schedule.every !== undefined) return durationMs(schedule.every as '1h', 'every')
    if (schedule.dailyAt !== undefined) return 86_400_000
    const cron = new Cron(schedule.cron ?? '', schedule.timezone)
    const first = cron.next(now)
    const second = first && cron.next(first)
    return second && second.getTime() - first.getTime()
  } catch {
    return undefined // the repository's own handler parks it, with the problem
  }
}
