import { Cron, InvalidCron, type NewSchedule } from 'phaselock/schedules'
import { durationMs, InvalidDuration } from 'phaselock/tasks'
import { checkEncodings } from '../chunk/index.js'
import { FileSelection } from '../select/index.js'
import { isBranchName, SourceProblem, sourceUrl } from '../source/index.js'
import type { RepositoryFields } from './documents.js'

/** The name of the task that a schedule of this package has. */
export const SYNC_TASK = 'repository-sync'

const FIELDS = [
  'url',
  'source',
  'branch',
  'include',
  'exclude',
  'encodings',
  'maxFileBytes',
  'profile',
  'collection',
  'schedule',
  'isActive',
] as const satisfies readonly (keyof RepositoryFields)[]

/** Fields that can't be those of a repository. */
export class InvalidRepository extends SourceProblem {
  override readonly name = 'InvalidRepository'
  constructor(
    readonly id: string,
    readonly problems: readonly string[],
  ) {
    super(`repository ${id}: ${problems.join('; ')}`)
  }
}

export const scheduleIdOf = (id: string): string => `repo_sync_${id}`

const ID = /^[\w.-]{1,150}$/

/** @throws InvalidRepository listing every problem, and unknown fields */
export function checkRepository(id: string, fields: RepositoryFields): void {
  const unknown = Object.keys(fields).filter((name) => !(FIELDS as readonly string[]).includes(name))
  const problems = [
    ...unknown.map((name) => `unknown field '${name}'; known: ${FIELDS.join(', ')}`),
    ...repositoryProblems(id, fields),
  ]
  if (problems.length > 0) throw new InvalidRepository(id, problems)
}

/** The problems in the owner's fields of a repository, by any writer; other fields are the owner's own matter. */
export function repositoryProblems(id: string, fields: RepositoryFields): string[] {
  const { url, source, branch, encodings, profile, collection, schedule, isActive } = fields
  const problems: string[] = []
  const check = (name: string, work: () => void) => {
    try {
      work()
    } catch (error) {
      problems.push(`${name}: ${(error as Error).message}`)
    }
  }
  if (typeof id !== 'string' || !ID.test(id)) problems.push('_id: expected 1 to 150 letters, digits, _, - and .')
  check('url', () => sourceUrl(url))
  if (source !== undefined && source !== 'git' && source !== 'gitlab')
    problems.push("source: expected 'git' or 'gitlab'")
  if (branch !== undefined && (typeof branch !== 'string' || !isBranchName(branch)))
    problems.push('branch: expected the name of a branch')
  check('files', () => new FileSelection(fields))
  if (encodings !== undefined) check('encodings', () => checkEncodings(encodings))
  if (profile !== undefined && (typeof profile !== 'string' || profile === ''))
    problems.push('profile: expected a name')
  if (typeof collection !== 'string' || collection === '')
    problems.push('collection: expected the name of a collection')
  if (isActive !== undefined && typeof isActive !== 'boolean') problems.push('isActive: expected true or false')
  return [...problems, ...scheduleProblems(schedule)]
}

function scheduleProblems(schedule: RepositoryFields['schedule']): string[] {
  if (schedule === undefined) return []
  const { cron, every, dailyAt, timezone, ...others } = schedule
  const problems = Object.keys(others).map(
    (name) => `schedule: unknown field '${name}'; known: cron, every, dailyAt, timezone`,
  )
  const given = [cron, every, dailyAt].filter((one) => one !== undefined)
  if (given.length !== 1) return [...problems, 'schedule: expected one of cron, every and dailyAt']
  if (timezone !== undefined && every !== undefined) problems.push('schedule: an interval (every) has no timezone')
  if (dailyAt !== undefined && !/^([01]\d|2[0-3]):[0-5]\d$/.test(dailyAt))
    problems.push("schedule.dailyAt: expected a time such as '03:00'")
  if (cron !== undefined && String(cron).trim().split(/\s+/).length !== 5)
    problems.push('schedule.cron: expected five fields')
  try {
    if (every !== undefined && durationMs(every as '1h', 'every') < 60_000)
      problems.push('schedule.every: expected at least 1m')
    if (cron !== undefined) new Cron(cron, timezone)
  } catch (error) {
    const isKnown = error instanceof InvalidDuration || error instanceof InvalidCron || error instanceof Error
    problems.push(`schedule: ${isKnown ? error.message : String(error)}`)
  }
  return problems
}

/** The schedule of a repository's syncs. Without one of its own it is inactive, and runs when someone asks for it. */
export function scheduleOf(repository: RepositoryFields & { readonly _id: string }): NewSchedule {
  const { schedule, isActive = true, _id } = repository
  const common = { task: SYNC_TASK, args: { repository: _id }, isActive: isActive && schedule !== undefined }
  const zone = schedule?.timezone === undefined ? {} : { timezone: schedule.timezone }
  if (schedule?.cron !== undefined) return { ...common, ...zone, cron: schedule.cron }
  if (schedule?.every !== undefined) return { ...common, interval: schedule.every as '1h' }
  if (schedule?.dailyAt === undefined) return { ...common, interval: '1d' }
  const [hours, minutes] = schedule.dailyAt.split(':').map(Number)
  return { ...common, ...zone, cron: `${minutes} ${hours} * * *` }
}
