import type { Document } from 'mongodb'
import {
  answerIn,
  dueSince,
  leaseStateOf,
  type OutboxEntry,
  outboxIn,
  questionIn,
  removedPhase,
  type StoredQuestion,
  sleepsForever,
  typeName,
  whyUnanswerable,
} from '../../lock/index.js'
import type { LifecycleModel } from '../../phases/index.js'

/** The condition of a document now, according to its fields. */
export type Condition =
  /** A phase that the lifecycle doesn't have: never claimed, never changed. */
  | { readonly kind: 'unknownPhase'; readonly phase: string }
  /** Removed for good: it is deleted once its callbacks are delivered. `from`: the phase that it was in, if known. */
  | { readonly kind: 'removed'; readonly from: string | undefined; readonly at: Date | undefined }
  /** A field that the protocol needs has a shape that it can't use. */
  | { readonly kind: 'broken'; readonly field: string; readonly found: string }
  | { readonly kind: 'parked' }
  /** `renewedAt`: when its lease was taken or last renewed. */
  | { readonly kind: 'held'; readonly by: string; readonly renewedAt: Date; readonly until: Date }
  /** `unanswerable`: it waits for an answer that no one can give; the text describes the fault of its question: 'is a number'. */
  | { readonly kind: 'sleeping'; readonly until: Date; readonly unanswerable?: string }
  /** Waits for an answer that has not been given yet. */
  | { readonly kind: 'asking'; readonly question: StoredQuestion }
  /** `expired`: the holder whose lease has expired. `since`: undefined if the document doesn't record it. */
  | { readonly kind: 'due'; readonly expired: string | undefined; readonly since: Date | undefined }
  | { readonly kind: 'resting' }
  /** In a final phase; removed at `removedAt`. */
  | { readonly kind: 'final'; readonly removedAt: Date | undefined }

export type ConditionKind = Condition['kind']

/**
 * Computes the condition of a document.
 * @param serverNow the server's time, which everything is judged by
 * @param lockTimeoutMs the lockTimeout in force: leases and sleeps are encoded with it
 */
export function conditionOf(
  document: Document,
  model: LifecycleModel,
  serverNow: Date,
  lockTimeoutMs: number,
): Condition {
  const misshapen = misshapenField(document, model)
  if (misshapen) return { kind: 'broken', ...misshapen }
  if (document['phase'] === removedPhase(model.name))
    return removedOne(outboxIn(document[model.settings.progress]).open.at(-1))
  const terms = { ...model.settings, lockTimeoutMs }
  const state = leaseStateOf(document, terms, serverNow)
  if (state.kind === 'neverDue') return { kind: 'broken', field: 'lockedAt', found: state.found }
  // Parked is parked in any phase, as in the counts.
  if (state.kind === 'parked') return state
  const phase = model.phases.get(document['phase'])
  if (!phase) return { kind: 'unknownPhase', phase: document['phase'] }
  if (state.kind === 'held') return { ...state, by: state.by ?? LEGACY_WRITER }
  if (phase.kind === 'resting') return { kind: 'resting' }
  if (phase.kind === 'final') return { kind: 'final', removedAt: state.kind === 'asleep' ? state.until : undefined }
  if (state.kind !== 'asleep') return { ...state, since: dueSince(document, terms, serverNow) }
  const question = questionIn(document[model.settings.progress])
  const isOpen = question && !answerIn(document[model.settings.progress], question) && !isOver(question, serverNow)
  if (isOpen) return { kind: 'asking', question }
  const sleeping = { kind: 'sleeping', until: state.until } as const
  return sleepsForever(document)
    ? { ...sleeping, unanswerable: whyUnanswerable(document[model.settings.progress]) }
    : sleeping
}

const removedOne = (last: OutboxEntry | undefined): Condition => ({
  kind: 'removed',
  from: typeof last?.from === 'string' ? last.from : undefined,
  at: last?.at instanceof Date ? last.at : undefined,
})

const isOver = ({ deadline }: StoredQuestion, now: Date): boolean => deadline !== null && deadline <= now

export const LEGACY_WRITER = 'a legacy writer'

/** The field for which a claim would quarantine the document: a `progress` of its owner's, or a phase that isn't a string. */
function misshapenField(document: Document, model: LifecycleModel): { field: string; found: string } | undefined {
  const { progress } = model.settings
  const { phase } = document
  if (typeof phase !== 'string') return { field: 'phase', found: typeName(phase) }
  const ours = typeName(document[progress])
  return ['an object', 'missing', 'null'].includes(ours) ? undefined : { field: progress, found: ours }
}
