import { isServerError } from '../../database/index.js'
import {
  addPause,
  MOST_PAUSES,
  type Pause,
  type Paused,
  pausesOfLimit,
  readLimits,
  removePause,
} from '../../lock/index.js'
import { typed } from '../../options/index.js'
import { notified } from '../act/as-owner.js'
import { OPERATION_LIFECYCLE } from '../bulk/operation.js'
import { recorded } from '../system/audit.js'
import { NotFound, Refused, UsageError } from '../system/errors.js'
import { modelOf, type System } from '../system/system.js'
import { type Changed, changeOf, endOf, type ListedPause } from './change.js'
import { eachOf, limitOfKey, pauseOneLimit, resumeOneLimit } from './limit-pauses.js'
import {
  type PauseRequest,
  type PauseScope,
  pausedByOthers,
  pauseEnd,
  pausesOf,
  type ResumeRequest,
  resumedOf,
  scopeText,
  targetOf,
} from './scope.js'

const LONGEST_REASON = 500
const UNAUTHORIZED = 13
/**
 * Pauses work: no step of it begins on any replica until it is resumed; running steps end, and are recorded. In force on each replica with
 * its next look. An earlier pause of the same scope by the same person is replaced; those of others stay.
 * @returns one for each lifecycle
 * @example await pauseWork(system, { lifecycle: 'order', phase: 'Packing', by: 'ana', reason: 'the printer is broken', for: '2h' })
 * @throws UsageError, nothing is paused then; NotFound for a document that doesn't exist, or a lifecycle that no replica has run yet;
 *   Refused if it has too many pauses
 */
export function pauseWork(system: System, request: PauseRequest): Promise<readonly ListedPause[]> {
  const about = { action: 'pause', target: scopeText(request) }
  return recorded(system, about, () => pausing(system, request), endOf).then((changed) =>
    changed.flatMap(({ pause }) => pause),
  )
}

async function pausing(system: System, request: PauseRequest): Promise<readonly Changed[]> {
  const { by, reason = null } = request
  if (by === '') throw new UsageError('expected who pauses it, got an empty string')
  if (reason !== null && reason.length > LONGEST_REASON)
    throw new UsageError(`expected a reason of at most ${LONGEST_REASON} characters, got ${reason.length}`)
  if (request.key !== undefined)
    return [await pauseOneLimit(system, limitOfKey(system, request), request, eachOf(system, request))]
  if (request.limit !== undefined) return [await pauseOneLimit(system, request.limit, request)]
  const { lifecycle, target } = await targetOf(system, request)
  const { byLifecycle, now } = await pausesOf(system)
  const end = pauseEnd(request, now)
  // All means the lifecycles that replicas have registered; one that is only in a file has no entry to be paused in. Operations are left
  // out: the people who begin them want them to run now.
  const all = system.models.map(({ name }) => name).filter((name) => name !== OPERATION_LIFECYCLE)
  const names = lifecycle === undefined ? all : [lifecycle]
  const paused: Changed[] = []
  for (const name of names) {
    const verdict = await addPause(system.db, name, { target, by, reason, end })
    if (verdict.kind === 'paused') paused.push(changeOf({ lifecycle: name }, verdict.pause, verdict.before, true))
    else if (verdict.kind === 'tooMany') throw tooMany(name, byLifecycle.get(name))
    else if (lifecycle !== undefined) throw notRegistered(name)
  }
  if (paused.length === 0) throw notRegistered(names.join(', '))
  await notified(system, lifecyclesOf(paused))
  return paused
}

/**
 * Ends a pause, and no other person's pause unless it is named. Returns the ended pause; with everything, one for each lifecycle that was
 * paused that way. Due documents continue immediately.
 * @example await resumeWork(system, { lifecycle: 'order', phase: 'Packing' }) // [{ lifecycle: 'order', what: 'phase', phase: 'Packing', by: 'ana', ... }]
 * @throws UsageError; Refused if it isn't paused, with the pauses in force, or if only others have paused it, with their names
 */
export async function resumeWork(system: System, request: ResumeRequest): Promise<readonly ListedPause[]> {
  const about = { action: 'resume', target: scopeText(request) }
  const resumed = await recorded(system, about, () => resuming(system, request), endOf)
  return resumed.map(({ pause }) => pause)
}

async function resuming(system: System, request: ResumeRequest): Promise<readonly Changed[]> {
  if (request.key !== undefined) return [await resumeOneLimit(system, limitOfKey(system, request), request)]
  if (request.limit !== undefined) return [await resumeOneLimit(system, request.limit, request)]
  const { byLifecycle } = await pausesOf(system)
  const lifecycle = request.lifecycle === undefined ? undefined : modelOf(system, request.lifecycle).name
  const target = resumedOf(system, request, byLifecycle)
  const names = lifecycle === undefined ? system.models.map(({ name }) => name) : [lifecycle]
  const resumed: Changed[] = []
  const others = new Set<string>()
  for (const name of target ? names : []) {
    const verdict = await removePause(system.db, name, target!, request)
    const one = verdict?.ended
    if (one) resumed.push(changeOf({ lifecycle: name }, one, verdict.before, false))
    else for (const { by } of verdict?.before ?? []) others.add(by)
  }
  if (resumed.length === 0)
    throw others.size > 0 ? pausedByOthers(request, [...others]) : notPaused(request, byLifecycle)
  await notified(system, lifecyclesOf(resumed))
  return resumed
}

/**
 * The pauses, in the order of the lifecycles, then limits.
 * @param lifecycle only this one's, no limits
 * @example await listPauses(system) // { pauses: [{ lifecycle: 'order', what: 'lifecycle', by: 'ana', reason: null, since, until: null }], now }
 * @throws UsageError for an unknown lifecycle
 */
export async function listPauses(
  system: System,
  lifecycle?: string,
): Promise<{ readonly pauses: readonly ListedPause[]; readonly now: Date }> {
  if (lifecycle !== undefined) modelOf(system, lifecycle)
  const { byLifecycle, now } = await pausesOf(system)
  const all = new Map([...byLifecycle].map(([name, { pauses }]) => [name, pauses]))
  if (lifecycle !== undefined) {
    const pauses = (all.get(lifecycle) ?? []).map((pause) => ({ lifecycle, ...pause }))
    return { pauses, now: now ?? new Date(0) }
  }
  const listed = await listedWithLimits(system.db, all)
  return { pauses: listed.pauses, now: now ?? listed.now ?? new Date(0) }
}

/** Those in force of lifecycles as they were read, then those of limits. */
export const pausesListed = async (
  db: System['db'],
  byLifecycle: ReadonlyMap<string, readonly Pause[]>,
): Promise<readonly ListedPause[]> => (await listedWithLimits(db, byLifecycle)).pauses

async function listedWithLimits(db: System['db'], byLifecycle: ReadonlyMap<string, readonly Pause[]>) {
  const { limits, now } = await readLimits(db).catch((error: unknown) => {
    // A role of an earlier version.
    if (isServerError(error, UNAUTHORIZED)) return { limits: [], now: undefined }
    throw error
  })
  const pauses = [...byLifecycle].flatMap(([lifecycle, own]) => own.map((pause) => ({ lifecycle, ...pause })))
  const ofLimits = limits.flatMap(({ name: limit, paused }) =>
    pausesOfLimit(paused).map((one) => ({ what: 'limit' as const, limit, ...one })),
  )
  return { pauses: [...pauses, ...ofLimits], now }
}

const notRegistered = (name: string): NotFound =>
  new NotFound(
    `no replica of ${name} has run in this database yet: there is nothing to pause`,
    { reason: 'noLifecycle', name },
    'a replica registers its lifecycles when it starts',
  )

function tooMany(lifecycle: string, paused: Paused | undefined): Refused {
  const documents = paused?.ids.length ?? 0
  return new Refused(
    `${lifecycle} has ${MOST_PAUSES} pauses already, ${documents} of them of single documents`,
    { reason: 'tooManyPauses', lifecycle },
    `pause a phase or all of it: phaselock pause ${typed(lifecycle)}`,
  )
}

function notPaused({ lifecycle, phase, id }: PauseScope, byLifecycle: ReadonlyMap<string, Paused>): Refused {
  const asked =
    lifecycle === undefined
      ? id === undefined
        ? 'everything'
        : id
      : `${lifecycle}${phase ? `, phase ${phase}` : id ? ` ${id}` : ''}`
  const others = [...byLifecycle].filter(([name]) => lifecycle === undefined || name === lifecycle)
  const count = others.reduce((sum, [, { pauses }]) => sum + pauses.length, 0)
  const rest =
    count === 0 ? 'nothing is' : `${count === 1 ? 'one other pause is' : `${count} other pauses are`} in force`
  return new Refused(
    `${asked} isn't paused as such: ${rest}`,
    { reason: 'notPaused', lifecycle },
    'see: phaselock pauses',
  )
}

const lifecyclesOf = (changed: readonly Changed[]): string[] =>
  changed.flatMap(({ pause }) => (pause.what === 'limit' ? [] : [pause.lifecycle]))
