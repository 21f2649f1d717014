import { isServerError } from '../../database/index.js'
import { ringerOf } from '../../doorbell/index.js'
import {
  addPause,
  idBytes,
  idKey,
  type KeyLimit,
  MOST_PAUSES,
  type Pause,
  type Paused,
  type PausedLimit,
  type PauseEnd,
  type PauseTarget,
  pauseLimit,
  pausesOfLimit,
  pauseTarget,
  readLimits,
  readPauses,
  removePause,
  resumeLimit,
} from '../../lock/index.js'
import { didYouMean, typed } from '../../options/index.js'
import { type AuditedEnd, eachKeyOf, keyLimitName, type LifecycleModel } from '../../phases/index.js'
import { durationMs } from '../../time/index.js'
import { OPERATION_LIFECYCLE } from '../bulk/operation.js'
import { documentMeant } from '../inspect/find.js'
import { recorded } from '../system/audit.js'
import { idsMeantBy } from '../system/document-id.js'
import { NotFound, Refused, UsageError } from '../system/errors.js'
import { modelOf, type System } from '../system/system.js'

/** The scope of a pause: everything, a lifecycle, one of its phases, or one of its documents. */
export interface PauseScope {
  /** The lifecycle. Default: all that replicas have registered. */
  readonly lifecycle?: string | undefined
  readonly phase?: string | undefined
  /** The id of a document, as people write it. */
  readonly id?: string | undefined
  /** The name of a limit across replicas, instead of all of these. */
  readonly limit?: string | undefined
  /** One value of a field, in a lifecycle with limits for each value (`limitBy`). */
  readonly key?: string | undefined
}

export interface PauseRequest extends PauseScope {
  /** The author of the pause. */
  readonly by: string
  /** The reason, for others to read: at most 500 characters. Default: none is given. */
  readonly reason?: string | undefined
  /** When it ends. Default: when it is resumed. */
  readonly until?: Date | undefined
  /** The same as a duration from now on: `2h`. */
  readonly for?: string | undefined
}

/** The scope to resume, and the author of the pause that ends. */
export interface ResumeRequest extends PauseScope {
  /** The person who resumes it: their own pause ends. If there is only one pause, that one ends. */
  readonly by?: string | undefined
  /** The author of the pause to end instead. */
  readonly of?: string | undefined
}

/** A pause, with its lifecycle or limit. */
export type ListedPause =
  | (Pause & { readonly lifecycle: string })
  | (PausedLimit & { readonly what: 'limit'; readonly limit: string })

/** The scope of a pause, in words. */
export const pausedText = (pause: ListedPause): string =>
  pause.what === 'limit' ? `limit ${pause.limit}` : pauseTarget(pause.lifecycle, pause)

/** The named scope, as far as it was given. */
function scopeText({ lifecycle, phase, id, limit, key }: PauseScope): string {
  if (key !== undefined) return `${lifecycle} --key ${key}`
  if (limit !== undefined) return `limit ${limit}`
  const named = id ?? (phase === undefined ? undefined : `phase ${phase}`)
  return [lifecycle ?? (named === undefined ? 'everything' : undefined), named].filter(Boolean).join(' ')
}

const LONGEST_REASON = 500
const UNAUTHORIZED = 13
/** The longest id of a paused document, because each look names these documents. */
const LONGEST_ID_BYTES = 1_000

/**
 * Pauses work: no step of it begins on any replica until it is resumed; running steps end, and are recorded. In force on each replica with
 * its
 * next look. An earlier pause of the same scope by the same person is replaced; those of others stay.
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

/** The change of the pauses of one scope: one was added, or ended. */
interface Changed {
  readonly pause: ListedPause
  readonly before: readonly ListedPause[]
  readonly after: readonly ListedPause[]
}

const endOf = (changed: readonly Changed[]): AuditedEnd => ({
  outcome: 'done',
  before: { pauses: changed.flatMap(({ before }) => before) },
  after: { pauses: changed.flatMap(({ after }) => after) },
})

type Named = { readonly lifecycle: string } | { readonly what: 'limit'; readonly limit: string }
type Bare = { readonly by: string }

function added(name: Named, { pause, before }: { readonly pause: Bare; readonly before: readonly Bare[] }): Changed {
  const all = before.map((one) => ({ ...name, ...one }) as ListedPause)
  const now = { ...name, ...pause } as ListedPause
  return { pause: now, before: all, after: [...all.filter(({ by }) => by !== pause.by), now] }
}

function ended(
  name: Named,
  { ended: pause, before }: { readonly ended: Bare; readonly before: readonly Bare[] },
): Changed {
  const all = before.map((one) => ({ ...name, ...one }) as ListedPause)
  return { pause: { ...name, ...pause } as ListedPause, before: all, after: all.filter(({ by }) => by !== pause.by) }
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
    if (verdict.kind === 'paused') paused.push(added({ lifecycle: name }, verdict))
    else if (verdict.kind === 'tooMany') throw tooMany(name, byLifecycle.get(name))
    else if (lifecycle !== undefined) throw notRegistered(name)
  }
  if (paused.length === 0) throw notRegistered(names.join(', '))
  await ringFor(system, paused)
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
    if (one) resumed.push(ended({ lifecycle: name }, { ended: one, before: verdict.before }))
    else for (const { by } of verdict?.before ?? []) others.add(by)
  }
  if (resumed.length === 0)
    throw others.size > 0 ? pausedByOthers(request, [...others]) : notPaused(request, byLifecycle)
  await ringFor(system, resumed)
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
  const pauses = [...byLifecycle].flatMap(([name, { pauses }]) =>
    pauses.map((pause) => ({ lifecycle: name, ...pause })),
  )
  if (lifecycle !== undefined)
    return { pauses: pauses.filter((one) => one.lifecycle === lifecycle), now: now ?? new Date(0) }
  const found = await readLimits(system.db).catch((error: unknown) => {
    // A role of an earlier version.
    if (isServerError(error, UNAUTHORIZED)) return { limits: [], now: undefined }
    throw error
  })
  const ofLimits = found.limits.flatMap(({ name: limit, paused }) =>
    pausesOfLimit(paused).map((one) => ({ what: 'limit' as const, limit, ...one })),
  )
  return { pauses: [...pauses, ...ofLimits], now: now ?? found.now ?? new Date(0) }
}

/** The pauses of the system's lifecycles, by lifecycle. */
export const pausesOf = ({ db, models }: System) =>
  readPauses(
    db,
    models.map(({ name }) => name),
  )

/** @throws UsageError if the lifecycle has no such limits */
function limitOfKey(system: System, { lifecycle, key, phase, id, limit }: PauseScope): string {
  if (lifecycle === undefined || [phase, id, limit].some((one) => one !== undefined))
    throw new UsageError('expected a lifecycle and --key, and nothing else of it')
  const { name, settings } = modelOf(system, lifecycle)
  if (settings.limitBy === undefined)
    throw new UsageError(`expected a lifecycle with limitBy, got ${name}, which has no limits of single values`)
  return keyLimitName(name, settings.limitBy, key!)
}

/** The limit of each value in the lifecycle of {@link limitOfKey}. */
const eachOf = (system: System, { lifecycle }: PauseScope): KeyLimit =>
  eachKeyOf(modelOf(system, lifecycle!).settings) ?? {}

async function pauseOneLimit(system: System, limit: string, request: PauseRequest, key?: KeyLimit): Promise<Changed> {
  const { by, reason = null } = request
  const { now = key ? (await pausesOf(system)).now : undefined } = await readLimits(system.db, [limit])
  const end = pauseEnd(request, now)
  const verdict = now && (await pauseLimit(system.db, limit, { by, reason, end }, key))
  if (verdict?.kind === 'paused') return added({ what: 'limit', limit }, verdict)
  if (verdict?.kind === 'tooMany')
    throw new Refused(
      `limit ${limit} has ${MOST_PAUSES} pauses already`,
      { reason: 'tooManyPauses', lifecycle: undefined },
      'see: phaselock pauses',
    )
  throw new NotFound(`there is no limit '${limit}'`, { reason: 'noLimit', name: limit }, 'see: phaselock limits')
}

async function resumeOneLimit(system: System, limit: string, request: ResumeRequest): Promise<Changed> {
  const verdict = await resumeLimit(system.db, limit, request)
  if (verdict?.ended) return ended({ what: 'limit', limit }, { ended: verdict.ended, before: verdict.before })
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

function pausedByOthers(request: ResumeRequest, by: readonly string[]): Refused {
  const meant = request.of === undefined ? 'none of these pauses is yours' : `none is ${request.of}'s`
  return new Refused(
    `${scopeText(request)} is paused by ${by.join(', ')}: ${meant}`,
    { reason: 'pausedByOthers', by },
    `to end another's: phaselock resume ... --of ${typed(by[0]!)}`,
  )
}

async function targetOf(
  system: System,
  scope: PauseScope,
): Promise<{ readonly lifecycle: string | undefined; readonly target: PauseTarget }> {
  const { lifecycle, phase, id } = scope
  requireOneScope(scope)
  if (id !== undefined) {
    const found = await documentMeant(system, { id, lifecycle })
    const _id: unknown = found.document['_id']
    if (idBytes(_id) > LONGEST_ID_BYTES)
      throw new UsageError(
        `expected a document whose _id has at most ${LONGEST_ID_BYTES} bytes; pause its phase instead`,
      )
    return { lifecycle: found.lifecycle, target: { what: 'document', _id } }
  }
  if (lifecycle === undefined) return { lifecycle, target: { what: 'all' } }
  const model = modelOf(system, lifecycle)
  if (phase === undefined) return { lifecycle, target: { what: 'lifecycle' } }
  requirePhase(model, phase)
  return { lifecycle, target: { what: 'phase', phase } }
}

function requireOneScope({ lifecycle, phase, id }: PauseScope): void {
  if (phase !== undefined && id !== undefined) throw new UsageError('expected a phase or a document, got both')
  if (phase !== undefined && lifecycle === undefined)
    throw new UsageError(`expected the lifecycle of the phase ${phase}, got none`)
}

function requirePhase({ name, phases }: LifecycleModel, phase: string): void {
  const known = [...phases.keys()]
  if (phases.has(phase)) return
  throw new UsageError(`expected a phase of ${name} (${known.join(', ')}), got '${phase}'${didYouMean(phase, known)}`, {
    reason: 'unknownPhase',
    got: phase,
    known,
  })
}

/** The target of a pause to end. Since it was paused a document may have been deleted, or a phase renamed: the stored pause counts. */
function resumedOf(
  system: System,
  scope: PauseScope,
  byLifecycle: ReadonlyMap<string, Paused>,
): PauseTarget | undefined {
  requireOneScope(scope)
  const { lifecycle, phase, id } = scope
  if (phase !== undefined) return { what: 'phase', phase }
  if (id === undefined) return { what: lifecycle === undefined ? 'all' : 'lifecycle' }
  const keys = new Set(idsMeantBy(id).map(idKey))
  const ids = system.models
    .filter(({ name }) => lifecycle === undefined || name === lifecycle)
    .flatMap(({ name }) => byLifecycle.get(name)?.ids ?? [])
    .filter((_id) => keys.has(idKey(_id)))
  return ids.length > 0 ? { what: 'document', _id: ids[0] } : undefined
}

/** @param now undefined if no lifecycle is registered: there is nothing to pause */
function pauseEnd({ until, for: duration }: PauseRequest, now: Date | undefined): PauseEnd {
  if (until !== undefined && duration !== undefined)
    throw new UsageError('expected a time (until) or a duration (for), got both')
  if (duration !== undefined) {
    const afterMs = durationMs(duration, 'for')
    if (afterMs >= 1_000) return { afterMs }
    throw new UsageError(`expected a duration (for) of at least 1s, got ${duration}; nothing was paused`)
  }
  if (until === undefined) return null
  if (now === undefined || until > now) return until
  throw new UsageError(
    `expected a time in the future, got ${until.toISOString()}; by the server's clock it is ${now.toISOString()}`,
  )
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

/** Notifies replicas, so that they look immediately; each also finds the change with its next tick. */
async function ringFor({ db, doorbell }: System, changed: readonly Changed[]): Promise<void> {
  if (doorbell === 'off') return
  const ringer = ringerOf(db)
  ringer.ring({ lifecycles: changed.flatMap(({ pause }) => (pause.what === 'limit' ? [] : [pause.lifecycle])) })
  await ringer.flush()
}
