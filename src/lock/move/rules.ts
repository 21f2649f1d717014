import type { Document, Filter } from 'mongodb'
import { withIds } from '../documents/values.js'
import { isNotHeld } from '../lease/lease-state.js'
import { hasRoom, outboxAfterRule } from '../outbox/outbox.js'
import { applyPendingInsert, applyPendingInsertOfHolder } from '../record/pending-insert.js'
import { historyWith } from '../record/step-end.js'
import { literal, progressAcrossPhases, progressIfOurs, TASK_LOCK_INIT_TIME, type Terms } from '../terms/terms.js'

/** "A document in one of these phases whose owner wants this state goes to that phase." */
export interface StateRule {
  readonly when: string
  readonly from: readonly string[]
  readonly moveTo: string
  /** The owner's state after the move. */
  readonly setState?: string | undefined
}

/**
 * The query of a look for a rule's documents; with `hint: STATE_INDEX`, 1 key per phase when nothing matches. A state or a phase
 * is a string: an array that contains it is the owner's, and says nothing.
 */
export function ruleLook(terms: Terms, rule: StateRule): Filter<Document> {
  return {
    state: { $eq: rule.when, $not: { $type: 'array' } },
    phase: { $in: [...rule.from], $not: { $type: 'array' } },
    ...isNotHeld(terms),
    ...hasRoom(terms),
  }
}

/**
 * A rule's filter and update for some of the documents that a look found. The condition is in the update itself: a held document is never
 * touched. It removes `lockedBy`, so that an expired holder's late write doesn't match, and keeps `progress.endedBy`. A `progress` of the owner's
 * stays as it is. An insert queued for a document whose holder is gone is applied with it.
 */
export function ruleUpdate(terms: Terms, rule: StateRule, ids: readonly unknown[]): [Filter<Document>, Document[]] {
  const now = '$$NOW'
  const reason = `owner wants ${rule.when}`
  const history = historyWith(terms, { outcome: 'rule', reason, by: 'rule', to: rule.moveTo })
  const progress = { since: now, attempts: 0, claims: 0, history, ...outboxAfterRule(terms, rule.moveTo, reason) }
  const moved = {
    phase: literal(rule.moveTo),
    lockedAt: TASK_LOCK_INIT_TIME,
    lockedBy: '$$REMOVE',
    updatedAt: now,
    ...(rule.setState === undefined ? {} : { state: literal(rule.setState) }),
    ...progressIfOurs(terms, { $mergeObjects: [progressAcrossPhases(terms), progress] }),
  }
  return [{ ...withIds(ids), $and: [ruleLook(terms, rule)] }, [{ $set: moved }, applyPendingInsert(terms)]]
}

/** A phase of an older version of a lifecycle, and its name in this version. */
export interface Rename {
  readonly from: string
  readonly to: string
}

/** The query of a look for a rename's documents. It reads one key per document in the old phase that an older version's replica holds. */
export function renameLook(terms: Terms, rename: Rename): Filter<Document> {
  return { phase: { $eq: rename.from, $not: { $type: 'array' } }, ...isNotHeld(terms) }
}

/**
 * A rename's filter and update for some of the documents that a look found. A document that a replica of the older version holds is never
 * touched: its step ends as in that version. Only the phase's name changes: a sleep, a park, its step and its deadline go on. An expired holder's
 * `lockedBy` is removed, so that its late write doesn't match, and a queued insert is applied.
 */
export function renameUpdate(terms: Terms, rename: Rename, ids: readonly unknown[]): [Filter<Document>, Document[]] {
  const reason = `${rename.from} is called ${rename.to} now`
  const history = historyWith(terms, { outcome: 'rule', reason, by: 'renamed', to: rename.to })
  const moved = {
    phase: literal(rename.to),
    ...progressIfOurs(terms, { $mergeObjects: [`$${terms.progress}`, { history }] }),
  }
  return [
    { ...withIds(ids), $and: [renameLook(terms, rename)] },
    [{ $set: moved }, applyPendingInsertOfHolder(terms), { $unset: 'lockedBy' }],
  ]
}
