import type { ClientSession, Collection, Db } from 'mongodb'
import {
  canBeId,
  type NewPause,
  NO_ID,
  type PauseTarget,
  readOwnFields,
  shownFields,
  shownProjection,
} from '../../lock/index.js'
import { checkOptions, InvalidOptions, shown, t } from '../../options/index.js'
import { systemClock } from '../../time/index.js'
import { UnknownState } from '../errors/errors.js'
import { type AuditedAction, type AuditedEnd, audited, endOfVerdict } from '../events/audit.js'
import { type LifecycleModel, whyUnknownState } from '../model/model.js'
import type { OwnerOptions } from './owner-types.js'

export const NO_OPTIONS = {}

const aSession = t.where<never>(
  (value) => value == null || typeof (value as { inTransaction?: unknown }).inTransaction === 'function',
  t.expecting("a session of the driver's (client.startSession())"),
)

/** The options of most calls; the code that reads `audit` checks it. */
export const CALL_OPTIONS = { session: t.optional(aSession), audit: t.anything<never>() }
const callOptions = t.object(CALL_OPTIONS)
export const stateOptions = t.object({ ...CALL_OPTIONS, force: t.optional(t.flag) })
export const unparkOptions = t.object({ ...CALL_OPTIONS, force: t.optional(t.flag), by: t.optional(t.name) })

/**
 * Checks what is to become part of a filter as the `_id` of one document: there an operator, a pattern or `undefined` would match others.
 * @throws InvalidOptions
 */
export function checkId(called: string, id: unknown): void {
  if (!canBeId(id))
    throw new InvalidOptions(called, [`expected an _id that a document can have (${NO_ID}), got ${shown(id)}`])
}

/**
 * Checks the arguments of a call on one document.
 * @throws InvalidOptions
 */
export function checkCall(
  called: string,
  id: unknown,
  options: unknown,
  types: t.ObjectType<t.Fields> = callOptions,
): void {
  checkId(called, id)
  checkCallOptions(called, options, types)
}

/** @throws InvalidOptions */
export function checkCallOptions(called: string, options: unknown, types: t.ObjectType<t.Fields> = callOptions): void {
  if (options !== NO_OPTIONS) checkOptions(called, types, options)
}

/** @throws InvalidOptions for a value that isn't a state; UnknownState for one that no rule names, unless it is forced */
export function checkState(
  model: LifecycleModel,
  state: unknown,
  { force }: { readonly force?: boolean | undefined },
): void {
  if (typeof state !== 'string' && state !== null)
    throw new InvalidOptions('setState', [`state: expected a string, got ${shown(state)}`])
  const problem = force === true ? undefined : whyUnknownState(model, state)
  if (problem === undefined) return
  const known = model.rules.map((rule) => rule.when)
  throw new UnknownState(model.name, state, [...new Set(known)], problem)
}

/**
 * The driver's options for the caller's session: the driver takes no `session: undefined`. Inside a transaction it leaves our write concern to the
 * transaction's own.
 */
export function inSession({ session }: OwnerOptions): { session?: ClientSession } {
  return session ? { session: session as unknown as ClientSession } : {}
}

const atMost = (most: number) =>
  t.checked(t.name, ({ length }) => length <= most, `expected at most ${most} characters`)

const answerOptions = t.object({
  option: atMost(1_000),
  by: atMost(200),
  reason: t.optional(atMost(1_000)),
  question: t.optional(t.name),
  session: t.anything<never>(),
  audit: t.anything<never>(),
})

/** The former name of an answer's reason. Answers keep it: they are stored with `comment`. */
export const FORMER_COMMENT = { renamed: { comment: 'reason' } } as const

/** @throws InvalidOptions */
export function newAnswer(options: unknown) {
  const {
    option,
    by,
    reason: comment = null,
    question,
  } = checkOptions('answer', answerOptions, options, FORMER_COMMENT)
  return { option, by, comment, question }
}

const questionsOptions = t.object({ limit: t.optional(t.whole(1, 10_000)), to: t.optional(t.name) })

/** @throws InvalidOptions */
export function readQuestionsOptions(options: unknown) {
  const { limit = 1_000, to } = checkOptions('questions', questionsOptions, options)
  return { limit, to }
}

const scopeOf = ({ phases }: LifecycleModel) => ({
  phase: t.optional(t.oneOf([...phases.keys()])),
  id: t.anything<unknown>(),
})

const aReason = t.optional(t.checked(t.text, ({ length }) => length <= 500, 'expected at most 500 characters'))

export const cancelOptions = t.object({
  by: t.name,
  reason: aReason,
  audit: t.optional(t.flag),
  evenIdle: t.optional(t.flag),
})

const pauseFields = {
  by: t.name,
  reason: aReason,
  until: t.optional(
    t.checked(
      t.aDate,
      (date) => date > systemClock.now(),
      (date) => `expected a time in the future, got ${shown(date)}`,
    ),
  ),
  for: t.optional(t.duration('1s', '36500d')),
  audit: t.optional(t.flag),
}

/** The person, the reason and the end of a pause. @throws InvalidOptions */
export function pauseOf(called: string, options: unknown): Omit<NewPause, 'target'> {
  return withEnd(called, checkOptions(called, t.object(pauseFields), options))
}

/** @throws InvalidOptions */
export function newPause(model: LifecycleModel, options: unknown): NewPause {
  requireScope('pause', options)
  const { phase, id, ...given } = checkOptions('pause', t.object({ ...scopeOf(model), ...pauseFields }), options)
  return { target: targetOf('pause', { phase, id }), ...withEnd('pause', given) }
}

type Given = t.ValueOf<t.ObjectType<typeof pauseFields>>

function withEnd(called: string, given: Given): Omit<NewPause, 'target'> {
  const { by, reason, until = null, for: afterMs } = given
  if (until !== null && afterMs !== undefined) throw new InvalidOptions(called, ['expected until or for, got both'])
  return { by, reason: reason ?? null, end: afterMs === undefined ? until : { afterMs } }
}

/** The target that is to go on, and the person whose pause of it ends. @throws InvalidOptions */
export function resumed(
  model: LifecycleModel,
  options: unknown,
): { readonly target: PauseTarget; readonly of: string | undefined } {
  requireScope('resume', options)
  const type = t.object({ ...scopeOf(model), of: t.optional(t.name), audit: t.anything() })
  const { of, phase, id } = checkOptions('resume', type, options)
  return { target: targetOf('resume', { phase, id }), of }
}

type Owned = { readonly by: string }

/** The pauses of one target before and after a person has paused it, for the audit. */
export const pausedEnd = <P extends Owned>(end: { readonly pause: P; readonly before: readonly P[] }): AuditedEnd => ({
  outcome: 'done',
  before: { pauses: end.before },
  after: { pauses: [...end.before.filter(({ by }) => by !== end.pause.by), end.pause] },
})

/** The same where a person has ended one. */
export function resumedEnd<P extends Owned>(
  verdict: { readonly before: readonly P[]; readonly ended: P | undefined } | undefined,
): AuditedEnd {
  if (!verdict) return { outcome: 'unchanged' }
  const { before, ended } = verdict
  if (!ended) return { outcome: 'refused', problem: `it is paused by ${ownersOf(before)}`, before: { pauses: before } }
  return { outcome: 'done', before: { pauses: before }, after: { pauses: before.filter((one) => one !== ended) } }
}

export const ownersOf = (pauses: readonly Owned[]): string => pauses.map(({ by }) => by).join(', ')

/** The error where several people have paused it, and the caller doesn't say whose pause ends. */
export const severalPauses = (called: string, pauses: readonly Owned[]): InvalidOptions =>
  new InvalidOptions(called, [
    `of: expected whose pause ends (${ownersOf(pauses)}), because there are several, got none`,
  ])

/** Refuses an undefined document or phase: a caller who names one doesn't mean the whole lifecycle. */
function requireScope(called: string, options: unknown): void {
  const lost = ['id', 'phase'].find(
    (name) => Object.hasOwn(Object(options), name) && Reflect.get(Object(options), name) === undefined,
  )
  if (lost !== undefined)
    throw new InvalidOptions(called, [
      `${lost}: expected a value, or to be left out for the whole lifecycle, got undefined`,
    ])
}

function targetOf(called: string, { phase, id }: { phase?: string | undefined; id?: unknown }): PauseTarget {
  if (phase !== undefined && id !== undefined) throw new InvalidOptions(called, ['expected phase or id, got both'])
  if (phase !== undefined) return { what: 'phase', phase }
  if (id === undefined) return { what: 'lifecycle' }
  checkId(called, id)
  return { what: 'document', _id: id }
}

/** The audit of an owner's calls: an entry is kept where the caller names a person. */
export class OwnerAudit {
  constructor(
    private readonly db: Db,
    private readonly model: LifecycleModel,
    private readonly documents: Collection,
  ) {}

  /** Acts on one document, and keeps an entry where the caller names a person. */
  async recordOn<T extends string>(
    id: unknown,
    options: Pick<OwnerOptions, 'audit' | 'session'>,
    action: string,
    act: () => Promise<T>,
    after: unknown,
  ): Promise<T> {
    if (!options.audit) return act()
    const { settings } = this.model
    const projection = shownProjection(settings.progress)
    const [found] = await readOwnFields((how) =>
      this.documents.find({ _id: id as never }, { projection, limit: 1, ...how, ...inSession(options) }).toArray(),
    )
    const before = found && shownFields(found, settings.progress)
    return this.record(options, { action, document: id, before }, act, (verdict) => endOfVerdict(verdict, after))
  }

  record<T>(
    { audit, session }: Pick<OwnerOptions, 'audit' | 'session'>,
    about: AuditedAction,
    act: () => Promise<T>,
    ended: (result: T) => AuditedEnd,
  ): Promise<T> {
    if (!audit) return act()
    const action = { ...about, lifecycle: this.model.name }
    return audited(this.db, audit, action, { ...inSession({ session }), act, ended })
  }
}
