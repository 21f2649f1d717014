import { idBytes, idKey, type Paused, type PauseEnd, type PauseTarget, readPauses } from '../../lock/index.js'
import { didYouMean, typed } from '../../options/index.js'
import { type LifecycleModel } from '../../phases/index.js'
import { durationMs } from '../../time/index.js'
import { documentMeant } from '../inspect/find.js'
import { requireSeen } from '../inspect/seen.js'
import { idsMeantBy } from '../system/document-id.js'
import { Refused, UsageError } from '../system/errors.js'
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
  /**
   * What was seen of the document that is paused: it is refused if that has changed. A pause is no write to the document, so this is looked at right before.
   * Default: whatever it is like.
   */
  readonly seen?: string | undefined
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

/** The named scope, as far as it was given. */
export function scopeText({ lifecycle, phase, id, limit, key }: PauseScope): string {
  if (key !== undefined) return `${lifecycle} --key ${key}`
  if (limit !== undefined) return `limit ${limit}`
  const named = id ?? (phase === undefined ? undefined : `phase ${phase}`)
  return [lifecycle ?? (named === undefined ? 'everything' : undefined), named].filter(Boolean).join(' ')
}

/** The longest id of a paused document, because each look names these documents. */
const LONGEST_ID_BYTES = 1_000

export async function targetOf(
  system: System,
  scope: PauseScope & Pick<PauseRequest, 'seen'>,
): Promise<{ readonly lifecycle: string | undefined; readonly target: PauseTarget }> {
  const { lifecycle, phase, id, seen } = scope
  requireOneScope(scope)
  if (seen !== undefined && id === undefined)
    throw new UsageError('expected a document with what was seen of it, got none')
  if (id !== undefined) {
    const found = await documentMeant(system, { id, lifecycle })
    await requireSeen(system, found, seen)
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
export function resumedOf(
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
export function pauseEnd({ until, for: duration }: PauseRequest, now: Date | undefined): PauseEnd {
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

export function pausedByOthers(request: ResumeRequest, by: readonly string[]): Refused {
  const meant = request.of === undefined ? 'none of these pauses is yours' : `none is ${request.of}'s`
  return new Refused(
    `${scopeText(request)} is paused by ${by.join(', ')}: ${meant}`,
    { reason: 'pausedByOthers', by },
    `to end another's: phaselock resume ... --of ${typed(by[0]!)}`,
  )
}

/** The pauses of the system's lifecycles, by lifecycle. */
export const pausesOf = ({ db, models }: System) =>
  readPauses(
    db,
    models.map(({ name }) => name),
  )
