import type { Document } from 'mongodb'
import { shownFields } from '../../lock/index.js'
import {
  DocumentExists,
  type DuplicateOptions,
  type InsertResult,
  type LifecycleModel,
  type OwnerClient,
  removeAndWake,
  whyUnknownState,
} from '../../phases/index.js'
import type { ConditionKind } from '../inspect/condition.js'
import { unknownPhaseNote } from '../inspect/explain.js'
import { type DocumentRef, documentMeant, readDocuments } from '../inspect/find.js'
import { requireSeen, requireStillSeen } from '../inspect/seen.js'
import { recorded } from '../system/audit.js'
import { Refused, UsageError } from '../system/errors.js'
import { modelOf, type System, termsInForce } from '../system/system.js'
import {
  type AsSeen,
  asOwner,
  type Done,
  doneTo,
  type Force,
  nameOf,
  notified,
  requireDone,
  whyNot,
} from './as-owner.js'

/** A document that was inserted, or that existed already. */
export interface Added extends Done {
  /** The phase that it has begun in; absent if it has not begun. */
  readonly phase?: string
  /** The result of the insert, if `onDuplicate` was given. */
  readonly kind?: InsertResult['kind']
}

/**
 * Inserts a document; without a phase it starts in the first entry phase.
 * @param force even with a state that no rule names
 * @param onDuplicate the behavior if a document has its `_id` already. Default: it is refused
 * @param dueIn with `onDuplicate`: the delay after the insert until it is due. Default: none
 * @example await addDocument(system, 'order', { _id: 'shop' }) // { lifecycle: 'order', _id: 'shop', phase: 'Creating' }
 * @throws UsageError for fields of Phaselock's own; InvalidDocument; Refused if it exists already
 */
export async function addDocument(
  system: System,
  lifecycle: string,
  fields: Document,
  { force = false, onDuplicate, dueIn }: Force & Partial<Pick<DuplicateOptions, 'onDuplicate' | 'dueIn'>> = {},
): Promise<Added> {
  const model = modelOf(system, lifecycle)
  const document: Document = { phase: model.entries[0], ...fields }
  requireOwnFields(model, document)
  if ('state' in document && !force) requireKnownState(model, document['state'])
  try {
    const { audit } = system
    if (onDuplicate === undefined) {
      const _id = await asOwner(system, lifecycle, (owner) => owner.insert(document, { audit }))
      return { lifecycle, _id, phase: document['phase'] }
    }
    const how = { onDuplicate, audit, ...(dueIn !== undefined && { dueIn }) }
    const { id, kind } = await asOwner(system, lifecycle, (owner) => owner.insert(document, how))
    const hasBegun = kind === 'inserted' || kind === 'restarted'
    return { lifecycle, _id: id, ...(hasBegun && { phase: document['phase'] }), kind }
  } catch (error) {
    if (!(error instanceof DocumentExists)) throw error
    const name = nameOf({ lifecycle, _id: document['_id'] })
    const why = error.index === '_id_' ? (error.taken ?? 'it already exists') : error.message
    throw new Refused(`${name} was not added: ${why}`, { reason: 'exists', lifecycle, id: document['_id'] })
  }
}

function requireOwnFields({ settings }: LifecycleModel, document: Document): void {
  const fields = ['lockedBy', 'fence', settings.progress].filter((field) => field in document)
  if (fields.length > 0) {
    throw new UsageError(
      `expected the owner's own fields, got ${fields.join(', ')}: Phaselock writes these`,
      { reason: 'invalidField', fields },
      'leave them out',
    )
  }
  const { lockedAt = null } = document
  if (lockedAt !== null && !(lockedAt instanceof Date)) {
    throw new UsageError(
      `expected lockedAt to say when it is due, as a date such as {"$date": "2026-01-01T10:00:00Z"}, got ${JSON.stringify(lockedAt)}`,
      { reason: 'invalidField', fields: ['lockedAt'] },
      'leave it out to make it due at once',
    )
  }
}

/** The state that a document's owner wants now, and its effect. */
export interface StateSet extends Done {
  readonly state: string
  /** false if the owner wanted that already. */
  readonly changed: boolean
  /** `such a phase` if it isn't a string. */
  readonly phase: string
  /** The phase that a state rule moves it to; undefined if no rule applies in its phase. */
  readonly goesTo: string | undefined
  /** True if the move has to wait until the document is released. */
  readonly held: boolean
}

/**
 * Sets the state that the owner of a document wants; its state rules do the rest.
 * @param force even a state that no rule names, for handlers that read it
 * @example await setState(system, { id: 'shop' }, 'Deleted') // { ..., changed: true, phase: 'Created', goesTo: 'Deleting', held: false }
 * @throws NotFound; UsageError, also for a state that no rule names
 */
export async function setState(
  system: System,
  ref: DocumentRef,
  state: string,
  { force = false, seen }: Force & AsSeen = {},
): Promise<StateSet> {
  const found = await documentMeant(system, ref)
  const model = modelOf(system, found.lifecycle)
  if (!force) requireKnownState(model, state)
  const where = await requireSeen(system, found, seen)
  const act = (owner: OwnerClient) => owner.setState(found.document['_id'], state, { force: true, audit: system.audit })
  const verdict = await asOwner(system, found.lifecycle, act, where)
  await requireDone(system, verdict, found, `set to ${state}`, { seen })
  const { phase } = found.document
  const rule = model.rules.find(({ when, from }) => when === state && from.includes(phase))
  const held = found.condition.kind === 'held'
  return {
    ...doneTo(found),
    state,
    changed: verdict === 'done',
    phase: typeof phase === 'string' ? phase : 'such a phase',
    goesTo: rule?.moveTo,
    held,
  }
}

/** @throws UsageError for a state that no rule names: it would change nothing */
export function requireKnownState(model: LifecycleModel, state: unknown): void {
  const problem = whyUnknownState(model, state)
  if (problem === undefined) return
  const known = model.rules.map((rule) => rule.when)
  const advice = '--force stores it anyway, for handlers that read it'
  throw new UsageError(problem, { reason: 'unknownState', got: state, known: [...new Set(known)] }, advice)
}

/** The result of a wake. `woken` is true if the document slept; `was` is its condition before. */
export interface Woken extends Done {
  readonly woken: boolean
  readonly was: ConditionKind
}

/**
 * Ends a document's sleep: it is due immediately.
 * @example await wakeDocument(system, { id: 'shop' }) // { lifecycle: 'order', _id: 'shop', woken: true, was: 'sleeping' }
 * @throws NotFound, UsageError; Refused while it is held, being worked on already, or parked
 */
export async function wakeDocument(system: System, ref: DocumentRef, { seen }: AsSeen = {}): Promise<Woken> {
  const found = await documentMeant(system, ref)
  const where = await requireSeen(system, found, seen)
  const act = (owner: OwnerClient) => owner.wake(found.document['_id'], { audit: system.audit })
  const verdict = await asOwner(system, found.lifecycle, act, where)
  const { condition } = found
  const was = condition.kind
  const neverDue = was === 'broken' && condition.field === 'lockedAt'
  // Neither parked nor asleep by its own fields: its date is beyond 9999 and can't be read here, or a legacy writer holds it.
  const unreadable = neverDue ? 'parked' : 'held'
  await requireDone(system, verdict === 'notParked' ? unreadable : verdict, found, 'woken', { seen })
  return { ...doneTo(found), woken: was === 'sleeping' || was === 'asking' || neverDue, was }
}

/**
 * Gives a parked document another try, with its attempts and claims at 0.
 * @param by the author, for the document's history
 * @param force also from a lease that is ahead of the server's clock: you vouch that its holder is gone
 * @returns `unclaimed`: the reason why no replica of this version claims it all the same
 * @example await unparkDocument(system, { id: 'shop' }, { by: 'ticket-4711' }) // { lifecycle: 'order', _id: 'shop', by: 'ticket-4711' }
 * @throws NotFound, UsageError; Refused while it is held, or if it isn't parked
 */
export async function unparkDocument(
  system: System,
  ref: DocumentRef,
  { by, force = false, seen }: Force & AsSeen & { readonly by: string },
): Promise<Done & { readonly by: string; readonly unclaimed?: string }> {
  const found = await documentMeant(system, ref)
  const where = await requireSeen(system, found, seen)
  const act = (owner: OwnerClient) => owner.unpark(found.document['_id'], { by, force, audit: system.audit })
  const verdict = await asOwner(system, found.lifecycle, act, where)
  await requireDone(system, verdict, found, 'unparked', { seen })
  const note = unknownPhaseNote(found.document, modelOf(system, found.lifecycle))
  return { ...doneTo(found), by, ...(note && { unclaimed: note.slice(2) }) }
}

/** A document that was removed. */
export interface RemovedDocument extends Done {
  /** false: it is deleted once its callbacks are delivered, and nothing revives it before. Absent: it is gone. */
  readonly deleted?: false
}

/**
 * Removes a document outright: no handler runs, and the objects that it has made stay. Usually you want `setState(..., 'Deleted')`.
 * @param force even while a replica holds it; the outcome of that replica's step is then dropped
 * @example await removeDocument(system, { id: 'shop' }) // { lifecycle: 'order', _id: 'shop' }
 * @throws NotFound, UsageError; Refused while it is held
 */
export async function removeDocument(
  system: System,
  ref: DocumentRef,
  { force = false, seen }: Force & AsSeen = {},
): Promise<RemovedDocument> {
  const found = await documentMeant(system, ref)
  const where = await requireSeen(system, found, seen)
  const model = modelOf(system, found.lifecycle)
  const terms = (await termsInForce(system.db, [model]))(model)
  const _id = found.document['_id'] as never
  const { by = 'owner', reason = null } = system.audit ?? {}
  const about = { action: 'remove', lifecycle: model.name, document: _id }
  const ringing: string[] = []
  const removed = await recorded(
    system,
    { ...about, before: shownFields(found.document, terms.progress) },
    () =>
      removeAndWake(system.db, model, {
        ...{ id: _id, terms, unlessHeld: !force, where, by: { by, reason } },
        ring: (lifecycles) => ringing.push(...lifecycles),
      }),
    (isDone) =>
      isDone
        ? { outcome: 'done', after: null }
        : { outcome: 'refused', problem: seen ? 'changedSince' : force ? 'notFound' : 'held' },
  )
  if (removed === 'told') ringing.push(model.name)
  if (ringing.length > 0) await notified(system, ringing)
  if (removed) return { ...doneTo(found), ...(removed === 'told' && { deleted: false as const }) }
  await requireStillSeen(system, found, seen)
  const [now] = await readDocuments(system, model, { _id }, 1)
  throw whyNot(system, now ? 'held' : 'notFound', now ?? found, 'removed without --force')
}
