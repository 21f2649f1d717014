import { type KeyLimit, MOST_PAUSES, pauseLimit, readLimits, resumeLimit } from '../../lock/index.js'
import { eachKeyOf, keyLimitName } from '../../phases/index.js'
import { NotFound, Refused, UsageError } from '../system/errors.js'
import { modelOf, type System } from '../system/system.js'
import { type Changed, changeOf } from './change.js'
import { type PauseRequest, type PauseScope, pausedByOthers, pauseEnd, pausesOf, type ResumeRequest } from './scope.js'

/** @throws UsageError if the lifecycle has no such limits */
export function limitOfKey(system: System, { lifecycle, key, phase, id, limit }: PauseScope): string {
  if (lifecycle === undefined || [phase, id, limit].some((one) => one !== undefined))
    throw new UsageError('expected a lifecycle and --key, and nothing else of it')
  const { name, settings } = modelOf(system, lifecycle)
  if (settings.limitBy === undefined)
    throw new UsageError(`expected a lifecycle with limitBy, got ${name}, which has no limits of single values`)
  return keyLimitName(name, settings.limitBy, key!)
}

/** The limit of each value in the lifecycle of {@link limitOfKey}. */
export const eachOf = (system: System, { lifecycle }: PauseScope): KeyLimit =>
  eachKeyOf(modelOf(system, lifecycle!).settings) ?? {}

export async function pauseOneLimit(
  system: System,
  limit: string,
  request: PauseRequest,
  key?: KeyLimit,
): Promise<Changed> {
  const { by, reason = null } = request
  const { now = key ? (await pausesOf(system)).now : undefined } = await readLimits(system.db, [limit])
  const end = pauseEnd(request, now)
  const verdict = now && (await pauseLimit(system.db, limit, { by, reason, end }, key))
  if (verdict?.kind === 'paused') return changeOf({ what: 'limit', limit }, verdict.pause, verdict.before, true)
  if (verdict?.kind === 'tooMany')
    throw new Refused(
      `limit ${limit} has ${MOST_PAUSES} pauses already`,
      { reason: 'tooManyPauses', lifecycle: undefined },
      'see: phaselock pauses',
    )
  throw new NotFound(`there is no limit '${limit}'`, { reason: 'noLimit', name: limit }, 'see: phaselock limits')
}

export async function resumeOneLimit(system: System, limit: string, request: ResumeRequest): Promise<Changed> {
  const verdict = await resumeLimit(system.db, limit, request)
  if (verdict?.ended) return changeOf({ what: 'limit', limit }, verdict.ended, verdict.before, false)
  if (verdict)
    throw pausedByOthers(
      { limit },
      verdict.before.map(({ by }) => by),
    )
  throw new Refused(
    `limit ${limit} isn't paused`,
    { reason: 'notPaused', lifecycle: undefined },
    'see: phaselock pauses',
  )
}
