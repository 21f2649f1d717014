import type { Document } from 'mongodb'
import type { ConditionKind } from '../inspect/condition.js'

/**
 * The terms of a document, in the order in which the engine judges them: a step of it begins when all of them hold. `limit` stands for each limit
 * and key that it needs.
 */
export const TERMS = [
  'shape',
  'removal',
  'park',
  'phase',
  'lease',
  'handler',
  'pause',
  'sleep',
  'rule',
  'clock',
  'limit',
  'replica',
  'turn',
  'writes',
  'isolation',
  'index',
] as const
export type TermName = (typeof TERMS)[number]

/** One condition for the next step of a document to begin. */
export interface Term {
  readonly name: TermName
  /** false: it stands in the way. `unknown`: an older replica doesn't say, or a right is missing. */
  readonly holds: boolean | 'unknown'
  /** The finding, for people: a clause without a full stop. */
  readonly text: string
  /** What it was judged by. */
  readonly evidence: Document
}

/** The judgement of a document: each term, and what stands in the way of its next step. */
export interface Verdict {
  readonly lifecycle: string
  /** Its `_id`. */
  readonly document: unknown
  readonly condition: ConditionKind
  /** All terms, in the order in which the engine judges them. */
  readonly terms: readonly Term[]
  /** For people: the first term that fails, or what happens next. */
  readonly sentence: string
  /** The first term that fails; absent: none does. */
  readonly blockedBy?: TermName
  /** The server's time of the reading. */
  readonly now: Date
}

const termWith =
  (holds: Term['holds']) =>
  (name: TermName, text: string, evidence: Document = {}): Term => ({ name, holds, text, evidence })

export const holds = termWith(true)
export const fails = termWith(false)
export const isUnknown = termWith('unknown')
