import type { Document, Filter } from 'mongodb'
import { ringerOf } from '../../doorbell/index.js'
import { STEP_SLACK_MS } from '../../lock/index.js'
import { InvalidOptions } from '../../options/index.js'
import { OwnerClient, type OwnerVerdict } from '../../phases/index.js'
import type { Found } from '../inspect/find.js'
import { requireStillSeen } from '../inspect/seen.js'
import { idText, idTyped } from '../system/document-id.js'
import { NotFound, Refused, UsageError } from '../system/errors.js'
import { modelOf, type System } from '../system/system.js'

/** The document that an operation acted on. */
export interface Done {
  readonly lifecycle: string
  readonly _id: unknown
}

/** What was seen of the document before: it is refused (`changedSince`) if it has changed since then. Default: whatever it is like now. */
export interface AsSeen {
  readonly seen?: string | undefined
}

/** An option to act anyway; each operation documents what it is otherwise refused for. */
export interface Force {
  readonly force?: boolean | undefined
}

export const doneTo = ({ lifecycle, document }: Found): Done => ({ lifecycle, _id: document['_id'] })

/** The name of a document in messages: `api-gateway 66f0...`. */
export const nameOf = ({ lifecycle, _id }: Done): string => `${lifecycle} ${idText(_id)}`

/**
 * Acts as the owner of a document, stored or not yet; when it resolves, replicas have been notified.
 * @throws UsageError for values given by users that the owner's call can't use
 */
export async function asOwner<T>(
  system: System,
  lifecycle: string,
  act: (owner: OwnerClient) => Promise<T>,
  where?: Filter<Document>,
): Promise<T> {
  const owner = new OwnerClient(system.db, modelOf(system, lifecycle), { doorbell: system.doorbell, where })
  try {
    return await act(owner)
  } catch (error) {
    throw error instanceof InvalidOptions ? new UsageError(error.problems.join('; ')) : error
  } finally {
    await owner.flush()
  }
}

/** Notifies replicas of due work of lifecycles, so that they look immediately; resolves once they have been notified. */
export async function notified({ db, doorbell }: System, lifecycles: readonly string[]): Promise<void> {
  if (doorbell === 'off') return
  const ringer = ringerOf(db)
  ringer.ring({ lifecycles: [...lifecycles] })
  await ringer.flush()
}

/** @throws NotFound or Refused, as an owner's verdict demands; `action`: what couldn't be done, such as `woken` */
export async function requireDone(
  system: System,
  verdict: OwnerVerdict,
  found: Found,
  action: string,
  { seen }: AsSeen = {},
): Promise<void> {
  if (verdict === 'done' || verdict === 'unchanged') return
  await requireStillSeen(system, found, seen)
  throw whyNot(system, verdict, found, action)
}

type NotDone = Exclude<OwnerVerdict, 'done' | 'unchanged'>

/** The error for a document that could not be changed, with advice. */
export function whyNot(system: System, verdict: NotDone, found: Found, action: string): NotFound | Refused {
  const { lifecycle, _id: id } = doneTo(found)
  const name = nameOf({ lifecycle, _id: id })
  if (verdict === 'notFound')
    return new NotFound(`${name} has been deleted in the meantime`, {
      reason: 'noDocument',
      id,
      lifecycles: [lifecycle],
    })
  const { progress } = modelOf(system, lifecycle).settings
  const [why, advice] = WHY[verdict](found, progress)
  return new Refused(`${name} can't be ${action}: ${why}`, { reason: verdict, lifecycle, id }, advice)
}

type WhyNot = (found: Found, progress: string) => readonly [problem: string, advice: string]

const WHY: Readonly<Record<'held' | 'parked' | 'notParked', WhyNot>> = {
  held({ document: { _id, lockedAt, lockedBy }, now }) {
    const holder = `${typeof lockedBy === 'string' ? lockedBy : 'somebody'} holds it`
    if (!(lockedAt instanceof Date && lockedAt.getTime() > now.getTime() + STEP_SLACK_MS))
      return [`${holder}, so it is being worked on`, `see: phaselock show ${idTyped(_id)}`]
    return [
      `${holder} by a lease that is ahead of the server's clock, which has stepped back`,
      `if that holder is gone: phaselock unpark ${idTyped(_id)} --force; if it may not be: phaselock check --repair`,
    ]
  },
  parked({ condition, document }, progress) {
    if (condition.kind === 'broken')
      return [
        'it is parked',
        `its '${condition.field}' is ${condition.found}: correct that first, then set lockedAt to null`,
      ]
    if (document[progress] == null)
      return ['it is parked', 'Phaselock has stored nothing in it; set its lockedAt to null']
    return ['it is parked', 'to give it another try, use: phaselock unpark']
  },
  notParked: () => ["it isn't parked", 'to end a sleep, use: phaselock wake'],
}
