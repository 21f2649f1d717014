import { createHash } from 'node:crypto'
import { type Count, countText } from '../inspect/count-text.js'

/** What needs a person, the most severe first: this is the order of the list. */
export const CAUSE_KINDS = [
  // Nothing works.
  'no-replica',
  'no-replica-of',
  // Documents that stand still until a person acts.
  'unknown-phase',
  'broken',
  'overdue',
  'park',
  'error',
  'loop',
  'callbacks',
  // A time that runs out.
  'question',
  'schedule',
  // Phaselock's own work.
  'operation',
  'dead-replica',
  'versions',
  'duty',
] as const
/** The kind of a cause. */
export type CauseKind = (typeof CAUSE_KINDS)[number]

/** A change that came shortly before a cause was first seen. */
export interface Change {
  /** When it was made; null: its source keeps no date. */
  readonly at: Date | null
  /** Who made it; null: a program, or nobody said so. */
  readonly by: string | null
  /** What it was, such as `limits set: limit gitlab-api`. */
  readonly what: string
}

/** An earlier operation on documents with the same cause. */
export interface Helped {
  readonly operation: string
  readonly action: string
  readonly by: string
  readonly endedAt: Date
  /** How it ended, and how many documents it acted on. */
  readonly ended: 'Done' | 'Aborted'
  readonly done: number
  /**
   * What became of the cause within a day after it: `gone`; `back`, it was seen again; `stayed`, it never went away; `unknown`, there
   * is no record of when it was first seen, or the day isn't over.
   */
  readonly cause: 'gone' | 'back' | 'stayed' | 'unknown'
}

/** Somebody deals with a cause. */
export interface Acknowledged {
  readonly by: string
  readonly note: string | null
  readonly since: Date
  readonly until: Date
  /** True if there are twice as many documents as when it was acknowledged: it needs a person again. */
  readonly doubled: boolean
}

/** The command that helps, and the one that shows what it would do. `...` stands for what a person has to decide. */
export interface CauseAction {
  readonly command: string
  readonly preview: string
}

/** What one source says of a cause. */
export interface FoundCause {
  readonly kind: CauseKind
  /** The names that distinguish it from others of its kind in its lifecycle. */
  readonly key: readonly string[]
  readonly lifecycle?: string | undefined
  readonly phase?: string | undefined
  /** For errors and reasons to park: the cause that is recorded in the documents. */
  readonly cause?: string | undefined
  /** For documents that are due: the first term of `phaselock why` that doesn't hold. */
  readonly term?: string | undefined
  /** What is the matter, in words that follow `12 documents` if there are documents. */
  readonly text: string
  /** The documents that it is about; null: it is about none, or their number isn't known. */
  readonly documents: Count | null
  /** Since when the oldest of them is in this condition; null: not recorded. */
  readonly oldest: Date | null
  readonly firstSeen: Date | null
  readonly lastSeen: Date | null
  readonly trend: 'rising' | 'steady' | 'falling' | 'unknown'
  /** At most three. */
  readonly ids: readonly unknown[]
  /** The versions of the app or of Phaselock that recorded it; empty: not recorded. */
  readonly versions: readonly string[]
  readonly action?: ((id: string) => CauseAction) | undefined
}

/** One thing that needs a person. */
export interface CauseRow extends Omit<FoundCause, 'key' | 'action'> {
  /** The same each time that the list is read: 12 hex digits. */
  readonly id: string
  /** What changed in the ten minutes before it was first seen; the newest first, at most 5. */
  readonly before: readonly Change[]
  /** Earlier operations on it; the newest first, at most 3. */
  readonly helped: readonly Helped[]
  readonly action?: CauseAction | undefined
  readonly ack?: Acknowledged | undefined
}

/**
 * The time before which no acknowledgement is of this row, because its fault began then; null: any may be. Only of these kinds the time when it was first
 * seen is the begin; of others it moves while the fault lasts.
 */
export const begunAt = ({ kind, firstSeen }: Pick<FoundCause, 'kind' | 'firstSeen'>): Date | null =>
  BEGIN_IS_KNOWN.includes(kind) ? firstSeen : null
const BEGIN_IS_KNOWN: readonly CauseKind[] = ['no-replica', 'park', 'error']

/** The id of a cause, made from what distinguishes it. */
export const causeId = ({ kind, lifecycle, key }: Pick<FoundCause, 'kind' | 'lifecycle' | 'key'>): string =>
  createHash('sha256')
    .update(JSON.stringify([kind, lifecycle ?? null, ...key]))
    .digest('hex')
    .slice(0, 12)

/** True if somebody deals with it, so that it needs nobody else. */
export const isAcknowledged = ({ ack }: Pick<CauseRow, 'ack'>): boolean => ack !== undefined && !ack.doubled

/** The most rows of a list. */
export const MOST_ROWS = 50

const rank = (kind: CauseKind): number => CAUSE_KINDS.indexOf(kind)
/** Without a time it counts as old: nothing says that it is new. */
const timeOf = ({ oldest, firstSeen }: Pick<FoundCause, 'oldest' | 'firstSeen'>): number =>
  (oldest ?? firstSeen ?? new Date(0)).getTime()

/** The order of a list: those that somebody deals with last; then by kind, the oldest first. Equal ones are ordered by id. */
export const inOrder = (a: CauseRow, b: CauseRow): number =>
  Number(isAcknowledged(a)) - Number(isAcknowledged(b)) ||
  rank(a.kind) - rank(b.kind) ||
  timeOf(a) - timeOf(b) ||
  (a.id < b.id ? -1 : 1)

/** A cause in one sentence: `order: 12 documents parked in Packing: no paper`. */
export function causeText({ lifecycle, documents, text }: Pick<CauseRow, 'lifecycle' | 'documents' | 'text'>): string {
  const isOne = documents?.n === 1 && !documents.more
  const about = documents ? `${countText(documents)} ${isOne ? 'document' : 'documents'} ` : ''
  return `${lifecycle === undefined ? '' : `${lifecycle}: `}${about}${text}`
}
