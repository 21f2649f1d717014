import type { Document } from 'mongodb'
import { stepFence } from '../lease/fence.js'
import { LEAST_PAUSE_MS, PARKED_AT, TASK_LOCK_INIT_TIME } from '../terms/constants.js'
import { countAt, inProgress, isDate, isValidYet, literal, perDocument, type Terms } from '../terms/terms.js'
import { serverPauseMs } from './back-off.js'
import { historyWith, type NewHistoryEntry, type RecordedOutcome } from './history.js'
import type { EndKind, StepEnd } from './step-end.js'

/** The ends of one group: same token, same kind and content. */
export interface EndGroup {
  readonly token: string
  readonly end: EndKind
  readonly members: readonly StepEnd[]
  /** What `lockedBy` becomes if the lease goes on (`again`, checkpoint). */
  readonly nextToken: string | null
}

/** The fields that an end writes, besides the owner's. */
interface Change {
  readonly top: Document
  /** Absent: `progress` doesn't change. */
  readonly progress?: Document
}

/**
 * The update that records a group of ends. Every end but `again` and `checkpoint` removes `lockedBy` and leaves the token in
 * `progress.endedBy`; those two set the next token. None leaves the old token in `lockedBy`, so a late or repeated write of
 * the same step matches nothing.
 */
export function endUpdate(terms: Terms, group: EndGroup): Document[] {
  const ids = group.members.map((member) => member.lease.id)
  const each = (value: (member: StepEnd) => unknown) => perDocument(ids, group.members.map(value))
  const change = changeOf(terms, group, each)
  const stages: Document[] = [
    {
      $set: {
        ...change.top,
        ...(change.progress && {
          [terms.progress]: { $mergeObjects: [`$${terms.progress}`, change.progress] },
        }),
      },
    },
  ]
  if (group.members.some((member) => member.set)) {
    // $mergeObjects at the top replaces an owner's nested object; $set would merge into the old one.
    stages.push({ $replaceWith: { $mergeObjects: ['$$ROOT', each((member) => member.set ?? {})] } })
  }
  const stale = group.members[0]?.stale ?? []
  if (stale.length > 0) stages.push({ $unset: stale.map((field) => `${terms.progress}.${field}`) })
  return stages
}

type Each = (value: (member: StepEnd) => unknown) => Document

function changeOf(terms: Terms, group: EndGroup, each: Each): Change {
  const { end, token } = group
  const now = terms.protocol.now()
  const history = (outcome: RecordedOutcome, more: { to?: string; reason?: string | null; by?: string } = {}) => {
    const ms = each((member) => Math.floor(member.ms))
    const entry: NewHistoryEntry = { outcome, step: end.step, reason: null, by: token, ms, ...more }
    return historyWith(terms, entry)
  }
  const letGo = { lockedBy: '$$REMOVE' }
  const ended = { endedBy: literal(token), claims: 0 }
  switch (end.kind) {
    case 'again': {
      const progress = { at: now, attempts: 0, history: history('again'), ...nextStep(end.nextStep) }
      return end.keepsLease
        ? { top: passOn(terms, group), progress: { ...progress, claims: 1 } }
        : {
            top: { ...letGo, lockedAt: TASK_LOCK_INIT_TIME, updatedAt: now },
            progress: { ...progress, ...ended },
          }
    }
    case 'checkpoint':
      return {
        top: { lockedBy: literal(group.nextToken) },
        progress: { at: now, history: history('checkpoint') },
      }
    case 'wait':
    case 'unavailable': {
      const pause = end.forMs === null ? serverPauseMs(terms) : Math.max(LEAST_PAUSE_MS, end.forMs)
      const since = inProgress(terms, 'waitingSince')
      return {
        top: { ...letGo, lockedAt: lockedAtFor(terms, wakeAt(terms, pause, each)) },
        progress: {
          ...ended,
          ...(end.kind === 'wait' ? { attempts: 0 } : {}),
          waitingFor: literal(end.reason),
          waitingSince: { $cond: [isDate(since), since, now] },
          resumeAt: wakeAt(terms, pause, each),
          history: history(end.kind, { reason: end.reason }),
        },
      }
    }
    case 'moveTo': {
      const sleep = end.arrival.kind === 'sleep' ? end.arrival.ms : null
      return {
        top: {
          ...letGo,
          phase: literal(end.to),
          lockedAt: sleep === null ? TASK_LOCK_INIT_TIME : lockedAtFor(terms, { $add: [now, sleep] }),
          updatedAt: now,
          ...(end.setState ? { state: compensated(end.setState) } : {}),
        },
        progress: {
          ...ended,
          since: now,
          attempts: 0,
          ...(sleep === null ? {} : { resumeAt: { $add: [now, sleep] } }),
          history: history(end.by === 'deadline' ? 'deadline' : 'moveTo', { to: end.to, reason: end.reason }),
        },
      }
    }
    case 'park':
      return {
        top: { ...letGo, lockedAt: PARKED_AT },
        progress: {
          ...ended,
          error: literal(end.error ?? { name: 'Parked', message: end.reason }),
          history: history('park', { reason: end.reason }),
        },
      }
    case 'putAside':
      return { top: { ...letGo, lockedAt: PARKED_AT } }
    case 'error': {
      const pause = each((member) => member.pauseMs ?? LEAST_PAUSE_MS)
      return {
        top: { ...letGo, lockedAt: lockedAtFor(terms, wakeAt(terms, pause, each)) },
        progress: {
          ...ended,
          attempts: { $add: [countAt(inProgress(terms, 'attempts')), 1] },
          error: literal(end.error),
          resumeAt: wakeAt(terms, pause, each),
          history: history('error', { reason: end.error.message }),
        },
      }
    }
    case 'released':
      return {
        top: { ...letGo, lockedAt: TASK_LOCK_INIT_TIME },
        progress: {
          endedBy: literal(token),
          claims: { $max: [0, { $subtract: [countAt(inProgress(terms, 'claims')), 1] }] },
          history: history('released'),
        },
      }
    case 'sleepUntilDeadline': {
      const deadline = each((member) => member.wakeBy)
      return {
        top: { ...letGo, lockedAt: lockedAtFor(terms, deadline) },
        progress: { ...ended, resumeAt: deadline, history: history('wait', { reason: 'its deadline' }) },
      }
    }
  }
}

const nextStep = (name: string | null): Document => (name === null ? {} : { step: literal(name) })

/** The next step under the same lease leaves `lockedAt` and `updatedAt`, the indexed fields, alone (13 % faster). */
const passOn = (terms: Terms, group: EndGroup): Document => ({
  lockedBy: literal(group.nextToken),
  fence: stepFence(terms),
})

/**
 * `lockedAt` of a document that sleeps until `wake`: it is due just after. If others may have given up this lockTimeout by the
 * time the command is executed, the document is due at once instead, and its next end puts it to sleep.
 */
function lockedAtFor(terms: Terms, wake: Document): Document {
  const asleep = { $subtract: [wake, terms.lockTimeoutMs] }
  const valid = isValidYet(terms)
  return valid ? { $cond: [valid, asleep, TASK_LOCK_INIT_TIME] } : asleep
}

/** Whether what this end writes depends on the lockTimeout. */
export const putsToSleep = ({ end }: Pick<EndGroup, 'end'>): boolean =>
  SLEEPS.has(end.kind) || (end.kind === 'moveTo' && end.arrival.kind === 'sleep')

const SLEEPS: ReadonlySet<EndKind['kind']> = new Set(['wait', 'unavailable', 'error', 'sleepUntilDeadline'])

/** now + pause, or the document's deadline if that comes first. */
function wakeAt(terms: Terms, pause: Document | number, each: Each): Document {
  return { $min: [{ $add: [terms.protocol.now(), pause] }, each((member) => member.wakeBy)] }
}

/** A state that the owner never set counts as null: in an expression a missing field equals nothing. */
const compensated = (change: { ifState: unknown; state: string }): Document => ({
  $cond: [{ $eq: [{ $ifNull: ['$state', null] }, literal(change.ifState)] }, literal(change.state), '$state'],
})
