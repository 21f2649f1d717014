import type { Document, Filter } from 'mongodb'
import { claimOf, tokenOf } from '../../lock/index.js'
import type { OwnerClient } from '../../phases/index.js'
import { sleep, systemClock } from '../../time/index.js'
import { type DocumentRef, documentMeant, type Found, holderOf, readDocuments } from '../inspect/find.js'
import { changedSince, requireSeen, requireStillSeen } from '../inspect/seen.js'
import { recorded } from '../system/audit.js'
import { Refused } from '../system/errors.js'
import { inForceIn, modelOf, runsOf, type System, termsInForce } from '../system/system.js'
import { type AsSeen, asOwner, type Done, doneTo, nameOf, whyNot } from './as-owner.js'
import { onSchedules } from './schedules.js'

const LOOK_EVERY_MS = 200

/** The result of a request to stop a step. */
export interface Cancelled extends Done {
  readonly by: string
  readonly reason: string | null
  /**
   * The token of the holder that was asked; null if a run of a schedule waits for the document that it has started, and that document is
   * asked to stop.
   */
  readonly holder: string | null
  /** True once the holder has released the document. */
  readonly ended: boolean
  /** The document as it is now; undefined if it is gone. */
  readonly now: Found | undefined
}

export interface CancelRequested extends AsSeen {
  /** The person or program that wants it to stop. */
  readonly by: string
  /** The reason, for its history: at most 500 characters. Default: none is given. */
  readonly reason?: string | undefined
  /** The time to wait for the handler to end. */
  readonly waitMs: number
}

/**
 * Asks the running step of a document to stop, and waits for that. The document is then parked, with the author and the reason, unless its
 * handler has moved it on.
 * @example await cancelStep(system, { id: 'shop' }, { by: 'ana', reason: 'stuck', waitMs: 5_000 }) // { ..., ended: true, now: { condition: { kind: 'parked' }, ... } }
 * @throws NotFound; UsageError, also for a reason that is too long; Refused if no step of it runs, or too many were asked for
 */
export async function cancelStep(system: System, ref: DocumentRef, request: CancelRequested): Promise<Cancelled> {
  const found = await documentMeant(system, ref)
  const { by, reason, seen } = request
  const { lifecycle } = found
  const model = modelOf(system, lifecycle)
  const terms = (await termsInForce(system.db, [model]))(model)
  const where = await requireSeen(system, found, seen)
  const _id = found.document['_id'] as never
  if (found.document['started'] !== undefined && (await isRunStopped(system, found, request, where)))
    return ended(system, found, request, null, (now) => now.document['phase'] !== 'Running')
  const ask = (owner: OwnerClient) => owner.askToStop(_id, { by, reason, audit: system.audit !== undefined })
  const { verdict, token } = await asOwner(system, lifecycle, ask, where)
  if (verdict !== 'asked') await requireStillSeen(system, found, seen)
  if (verdict === 'notHeld' && seen !== undefined && holderOf(found, terms) !== undefined)
    throw await askedBefore(system, found, seen)
  if (verdict === 'notFound') throw whyNot(system, verdict, found, 'cancelled')
  if (token === null) throw whyNotAsked(found, verdict)
  const claim = claimOf(token)
  const isOver = (now: Found) => claimOf(holderOf(now, terms) ?? '') !== claim
  return ended(system, found, request, token, isOver)
}

/** Waits until the step or run that was asked to stop has ended, for at most `waitMs`. */
async function ended(
  system: System,
  found: Found,
  { by, reason, waitMs }: CancelRequested,
  holder: string | null,
  isOver: (now: Found) => boolean,
): Promise<Cancelled> {
  const _id = found.document['_id'] as never
  const untilMs = systemClock.monotonicMs() + waitMs
  for (;;) {
    const [now] = await readDocuments(system, modelOf(system, found.lifecycle), { _id }, 1)
    const isEnded = now === undefined || isOver(now)
    if (isEnded || systemClock.monotonicMs() >= untilMs)
      return { ...doneTo(found), by, reason: reason ?? null, holder, ended: isEnded, now }
    await sleep(LOOK_EVERY_MS)
  }
}

/** True if it is a schedule's run that waits for the document that it has started: then that document is asked to stop. */
async function isRunStopped(
  system: System,
  { document, lifecycle }: Found,
  request: CancelRequested,
  where: Filter<Document> | undefined,
): Promise<boolean> {
  const { by, reason } = request
  const id: unknown = document['_id']
  if (typeof id !== 'string' || lifecycle !== runsOf(system.collections)) return false
  const act = () => onSchedules(system, (schedules) => schedules.cancelRun(id, { by, reason }, where))
  return recorded(system, { action: 'cancel', target: `run ${id}` }, act, (isDone) => ({
    outcome: isDone ? 'done' : 'unchanged',
  }))
}

/** The refusal where somebody else has asked for the same since: that changes none of the document's own fields. */
async function askedBefore(system: System, found: Found, seen: string): Promise<Refused> {
  const model = modelOf(system, found.lifecycle)
  const { cancels } = (await inForceIn(system.db, [model]))(model)
  const claim = claimOf(tokenOf(found.document) ?? '')
  const asked = cancels.find((one) => one.claim === claim)
  return changedSince(system, found, seen, asked && { by: asked.by, did: 'cancel' })
}

function whyNotAsked(found: Found, verdict: string): Refused {
  const { lifecycle } = found
  const name = nameOf(doneTo(found))
  if (verdict === 'tooMany') {
    const why = 'too many steps of its lifecycle were cancelled within ten minutes'
    return new Refused(
      `${name} was not cancelled: ${why}`,
      { reason: 'tooManyCancels', lifecycle },
      'pause the lifecycle',
    )
  }
  const id: unknown = found.document['_id']
  return new Refused(
    `${name} can't be cancelled: no step of it runs (it is ${found.condition.kind})`,
    { reason: 'notHeld', lifecycle, id },
    'to keep the next one from beginning: phaselock pause',
  )
}
