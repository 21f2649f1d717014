import type { Document, Filter } from 'mongodb'
import { leaseUnmoved, stepFence } from '../lease/lease.js'
import { outboxAfter } from '../outbox/outbox.js'
import { applyPendingInsert } from '../record/pending-insert.js'
import { ASKS_FOREVER, newQuestion } from '../record/progress.js'
import {
  type EndKind,
  historyWith,
  type NewHistoryEntry,
  type RecordedOutcome,
  removedFields,
  type StepEnd,
  serverPauseMs,
} from '../record/step-end.js'
import {
  countAt,
  inProgress,
  isDate,
  isValidYet,
  LEAST_PAUSE_MS,
  literal,
  PARKED_AT,
  perDocument,
  TASK_LOCK_INIT_TIME,
  type Terms,
  withoutClaim,
} from '../terms/terms.js'

/** The ends of one group: same token, same kind and content. */
export interface EndGroup {
  readonly token: string
  readonly end: EndKind
  readonly members: readonly StepEnd[]
  /** The next `lockedBy` if the lease goes on (`again`, checkpoint). */
  readonly nextToken: string | null
  /** The documents have a queued insert (pending-insert.ts), which this write applies. */
  readonly appliesPendingInsert?: true | undefined
}

/** The same ends of documents with a queued insert: none keeps its lease. */
export function applyingPendingInsert(group: EndGroup): EndGroup {
  const { end } = group
  if (!needsNoPendingInsert(end)) return group
  return {
    ...group,
    end: end.kind === 'again' ? { ...end, keepsLease: false } : end,
    nextToken: null,
    appliesPendingInsert: true,
  }
}

/** The conditions of a group's update on its documents: the lease, and no queued insert that the update doesn't apply. */
export const endFilter = (terms: Terms, { token, end, appliesPendingInsert }: EndGroup): Filter<Document> => ({
  lockedBy: token,
  ...leaseUnmoved(terms),
  ...(!appliesPendingInsert && needsNoPendingInsert(end) && { [`${terms.progress}.next`]: { $exists: false } }),
})

/**
 * True if the end needs documents without a queued insert. A checkpoint keeps its document, and a quarantine must take no more of
 * it than it has: queued inserts stay.
 */
const needsNoPendingInsert = ({ kind }: EndKind): boolean => kind !== 'checkpoint' && kind !== 'quarantine'

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
  const outbox = terms.callbacks && outboxAfter(terms, group.end, group.token)
  const progress = change.progress && {
    [terms.progress]: { $mergeObjects: [`$${terms.progress}`, { ...change.progress, ...outbox }] },
  }
  const alike = fieldsSetByAll(group)
  const own = Object.fromEntries((alike ?? []).map((name) => [name, each((member) => member.set?.[name])]))
  const stages: Document[] = [{ $set: { ...change.top, ...progress, ...own } }]
  // $mergeObjects at the top replaces an owner's nested object, as a literal does; $set of an object would merge into the old one.
  if (!alike) stages.push({ $replaceWith: { $mergeObjects: ['$$ROOT', each((member) => member.set ?? {})] } })
  const { stale = [], set = {} } = group.members[0] ?? {}
  const gone = [...stale.map((field) => `${terms.progress}.${field}`), ...removedFields(set)]
  if (gone.length > 0) stages.push({ $unset: gone })
  if (group.appliesPendingInsert) stages.push(applyPendingInsert(terms))
  return stages
}

/**
 * The owner's fields, where all members set the same few: each field is looked up separately, which is cheaper (31 us of the
 * server's CPU a document instead of 35 to 40) up to about two.
 */
function fieldsSetByAll({ members }: EndGroup): readonly string[] | undefined {
  const [first = [], ...others] = members.map(({ set }) => Object.keys(set ?? {}))
  const isSame = (names: readonly string[]) =>
    names.length === first.length && names.every((name, i) => name === first[i])
  return first.length <= MOST_ONE_BY_ONE && others.every(isSame) ? first : undefined
}
const MOST_ONE_BY_ONE = 2

type Each = (value: (member: StepEnd) => unknown) => Document

function changeOf(terms: Terms, group: EndGroup, each: Each): Change {
  const { end, token } = group
  const now = '$$NOW'
  const history = (outcome: RecordedOutcome, more: Partial<Pick<NewHistoryEntry, 'to' | 'reason' | 'folds'>> = {}) => {
    const ms = each((member) => Math.floor(member.ms))
    return historyWith(terms, { outcome, step: end.step, by: token, ms, ...more })
  }
  const ended = { endedBy: literal(token), claims: 0 }
  const letGo = (lockedAt: Document | Date, progress?: Document, top: Document = {}): Change => ({
    top: { lockedBy: '$$REMOVE', lockedAt, ...top },
    ...(progress && { progress }),
  })
  switch (end.kind) {
    case 'again': {
      const step = end.nextStep === null ? {} : { step: literal(end.nextStep) }
      const { folds, forMs } = end
      const wake = forMs === undefined ? undefined : wakeAt(forMs, each)
      const reason = wake ? MANY_STEPS : null
      const progress = { at: now, attempts: 0, history: history('again', { folds, reason }), ...step }
      if (end.keepsLease) return { top: passOn(group), progress: { ...progress, claims: 1 } }
      const counted = group.members[0]?.steps !== undefined && { steps: each((member) => member.steps) }
      const next = { ...progress, ...ended, ...counted, ...(wake && { resumeAt: wake }) }
      return letGo(wake ? asleepUntil(terms, wake) : TASK_LOCK_INIT_TIME, next, { updatedAt: now })
    }
    case 'checkpoint':
      return {
        top: { lockedBy: literal(group.nextToken) },
        progress: {
          at: now,
          history: history('checkpoint', { reason: end.reason ?? null }),
          ...(end.children && { children: literal(end.children) }),
          ...(end.childrenFrom !== undefined && { childrenFrom: end.childrenFrom }),
        },
      }
    case 'wait':
    case 'unavailable': {
      const wake = wakeAt(end.forMs === null ? serverPauseMs(terms) : Math.max(LEAST_PAUSE_MS, end.forMs), each)
      const since = inProgress(terms, 'waitingSince')
      return letGo(asleepUntil(terms, wake), {
        ...ended,
        ...(end.kind === 'wait' && { attempts: 0 }),
        waitingFor: literal(end.reason),
        ...(end.on !== undefined && { waitingOn: literal(end.on) }),
        waitingSince: { $cond: [isDate(since), since, now] },
        resumeAt: wake,
        ...(end.awaits && { awaits: literal(end.awaits) }),
        history: history(end.kind, { reason: end.reason }),
      })
    }
    case 'ask': {
      const { question, forMs, keeps: folds, times } = end
      const ends = { $min: [forMs === null ? null : { $add: [now, forMs] }, each((member) => member.wakeBy)] }
      const asked = inProgress(terms, 'question.deadline')
      const wake = { $ifNull: [folds ? { $cond: [isDate(asked), asked, null] } : ends, ASKS_FOREVER] }
      return letGo(asleepUntil(terms, wake), {
        ...ended,
        attempts: 0,
        resumeAt: wake,
        ...(!folds && { question: newQuestion(question, { token, now, deadline: ends, times }) }),
        history: history('ask', { reason: question.question, folds }),
      })
    }
    case 'moveTo': {
      const wake = end.forMs === undefined ? undefined : { $add: [now, end.forMs] }
      const { to, reason } = end
      return letGo(
        wake ? asleepUntil(terms, wake) : TASK_LOCK_INIT_TIME,
        {
          ...ended,
          since: now,
          attempts: 0,
          ...(wake && { resumeAt: wake }),
          ...(end.inCircles && { steps: each((member) => member.steps ?? 0) }),
          history: history(end.by === 'deadline' ? 'deadline' : 'moveTo', { to, reason }),
        },
        { phase: literal(to), updatedAt: now, ...(end.setState && { state: compensated(end.setState) }) },
      )
    }
    case 'park': {
      const { reason: message, cause } = end
      const error = literal(end.error ?? { name: 'Parked', message, ...(cause !== undefined && { cause }) })
      const used = end.usesAttempt && { attempts: oneMoreAttempt(terms) }
      return letGo(PARKED_AT, { ...ended, ...used, error, history: history('park', { reason: end.reason }) })
    }
    case 'quarantine':
      return letGo(PARKED_AT)
    case 'error': {
      const pause = each((member) => member.pauseMs ?? LEAST_PAUSE_MS)
      const wake = wakeAt(pause, each)
      return letGo(asleepUntil(terms, wake), {
        ...ended,
        attempts: oneMoreAttempt(terms),
        error: literal(end.error),
        resumeAt: wake,
        history: history('error', { reason: end.error.message }),
      })
    }
    case 'released':
      return letGo(TASK_LOCK_INIT_TIME, {
        endedBy: literal(token),
        claims: withoutClaim(terms),
        history: history('released'),
      })
    case 'sleepUntilDeadline': {
      const deadline = each((member) => member.wakeBy)
      const reason = 'its deadline'
      return letGo(asleepUntil(terms, deadline), { ...ended, resumeAt: deadline, history: history('wait', { reason }) })
    }
  }
}

const oneMoreAttempt = (terms: Terms): Document => ({ $add: [countAt(inProgress(terms, 'attempts')), 1] })

/** Begins the next step under the same lease. It leaves `lockedAt` and `updatedAt`, the indexed fields, alone (13 % faster). */
const passOn = (group: EndGroup): Document => ({
  lockedBy: literal(group.nextToken),
  fence: stepFence,
})

/**
 * The `lockedAt` of a document that sleeps until `wake`: it is due just after. If others may have given up this lockTimeout by the
 * time the command is executed, the document is due immediately instead, and its next end puts it to sleep.
 */
export function asleepUntil(terms: Terms, wake: Document): Document {
  const asleep = { $subtract: [wake, terms.lockTimeoutMs] }
  const valid = isValidYet(terms)
  return valid ? { $cond: [valid, asleep, TASK_LOCK_INIT_TIME] } : asleep
}

/** True if the fields that this end writes depend on the lockTimeout. */
export const putsToSleep = ({ end }: Pick<EndGroup, 'end'>): boolean =>
  SLEEPS.has(end.kind) || ((end.kind === 'moveTo' || end.kind === 'again') && end.forMs !== undefined)

/** The reason that a document sleeps between two steps. */
export const MANY_STEPS = 'many steps in a row without a new phase'

const SLEEPS: ReadonlySet<EndKind['kind']> = new Set(['wait', 'ask', 'unavailable', 'error', 'sleepUntilDeadline'])

/** now + pause, or the document's deadline if that comes first. */
const wakeAt = (pause: Document | number, each: Each): Document => ({
  $min: [{ $add: ['$$NOW', pause] }, each((member) => member.wakeBy)],
})

/** The state after a compensation. One that the owner never set counts as null: in an expression a missing field equals nothing. */
const compensated = (change: { ifState: unknown; state: string }): Document => ({
  $cond: [{ $eq: [{ $ifNull: ['$state', null] }, literal(change.ifState)] }, literal(change.state), '$state'],
})

/** More in one command is hardly faster (1,000: +5 % over 500, measured) and holds up others for longer. */
const MAX_MEMBERS = 1_000
/** The server looks for each document's own value in a list of all: 250 cost 10 % less than 500 (28 us of its CPU a document, 31). */
const MAX_WITH_DATA = 250

/** True if a lease goes on after this end, under the next token. */
const keepsLease = ({ end }: StepEnd): boolean => end.kind === 'checkpoint' || (end.kind === 'again' && end.keepsLease)

/**
 * Groups the ends that one command may write: same token, kind and content. One token only: `lockedBy: { $in: [...] }` with several
 * would match a document under another document's token.
 * @param most the most documents that one update may cover
 */
export function groupEnds(ends: readonly StepEnd[], most = Number.POSITIVE_INFINITY): EndGroup[] {
  return [...Map.groupBy(ends, keyOf).values()].flatMap((alike) => {
    const groups: EndGroup[] = []
    const size = Math.min(most, alike[0]?.set ? MAX_WITH_DATA : MAX_MEMBERS)
    for (let i = 0; i < alike.length; i += size) groups.push(groupOf(alike.slice(i, i + size)))
    return groups
  })
}

/**
 * A key for ends that may be written together. It is the end itself if its content can't be compared as a string: then it is alone,
 * and never costs the others their verdicts.
 */
function keyOf(one: StepEnd): string | StepEnd {
  const { lease, end, stale, set } = one
  if (!isText(end)) return one
  try {
    return JSON.stringify([lease.token, end, stale, set && removedFields(set)])
  } catch {
    return one
  }
}

/**
 * True if the end can be compared as a string. A compensation's `ifState` is what the owner wrote, of any type: as strings, 5 and
 * Long 5, or a date and its string, look alike.
 */
const isText = (end: EndKind): boolean =>
  end.kind !== 'moveTo' || end.setState === undefined || typeof (end.setState.ifState ?? '') === 'string'

function groupOf(members: readonly StepEnd[]): EndGroup {
  const first = members[0]!
  const { end, lease } = first
  return { token: lease.token, end, members, nextToken: keepsLease(first) ? lease.claim.nextToken() : null }
}
