import type { Document } from 'mongodb'
import type { EndKind, RecordedOutcome } from '../record/step-end.js'
import { type CallbackName, countAt, literal, type Terms } from '../terms/terms.js'

/*
 * The outbox: the undelivered entries of a document's callbacks, in the document itself (docs/callbacks.md).
 *
 * Invariants:
 * - An entry is stored by the very update that makes the change it reports: neither is there without the other, whatever crashes in between.
 * - An entry leaves the outbox only after its callback has returned, or because a person skips it. So each is delivered at least once, and
 *   nothing is dropped silently: a document whose outbox is full doesn't go on.
 * - Only the first entry is delivered, and only by the holder of the outbox's lease (`by`, until `dueAt`, by the server's clock). So one
 *   document's callbacks run in their order, one at a time.
 * - A document that is removed with something to deliver goes to a phase that no lifecycle can have: nothing claims, moves or changes it any
 *   more. Its last entry says that it is to be deleted, and only the delivery of that entry deletes it. So this entry comes last, and never from
 *   a document that lives on.
 * - A lifecycle without callbacks stores nothing of this, and reads nothing for it.
 */

/** The callbacks that a lifecycle may declare. */
export const CALLBACK_NAMES = [
  'onMoved',
  'onParked',
  'onTimeout',
  'onRemoved',
] as const satisfies readonly CallbackName[]

/** The addressee of an entry: a callback; `delete` stands at the end, where the removal itself is not delivered. */
export type EntryName = CallbackName | 'delete'

/** The names of the entries that end a document: their delivery deletes it. */
const LAST_ENTRIES: readonly EntryName[] = ['onRemoved', 'delete']
export const isLastEntry = ({ callback }: Pick<OutboxEntry, 'callback'>): boolean => LAST_ENTRIES.includes(callback)

const REMOVED = '$removed:'
/** The phase of removed documents of a lifecycle that are only there until the removal is delivered. No phase's own name begins with `$`. */
export const removedPhase = (lifecycle: string): string => `${REMOVED}${lifecycle}`
/** True if a phase is the {@link removedPhase} of any lifecycle. */
export const isRemovedPhase = (phase: unknown): boolean => typeof phase === 'string' && phase.startsWith(REMOVED)

/** An undelivered event for a callback. */
export interface OutboxEntry {
  /** Grows by 1 with each entry of a document. */
  readonly seq: number
  readonly callback: EntryName
  /** The time of the event, by the server's clock. */
  readonly at: Date
  readonly from: string
  readonly to: string
  readonly step: string | null
  readonly outcome: RecordedOutcome
  readonly reason: string | null
  /** The token of the step that did it, or `rule`. */
  readonly by: string
}

/** A document's outbox as it is read. */
export interface Outbox {
  readonly open: readonly OutboxEntry[]
  /** The time when it may be delivered next, or when its holder's lease ends; `PARKED_AT`: when a person says so. */
  readonly dueAt: Date | undefined
  /** The process that delivers it now; absent: none. */
  readonly by: string | undefined
  /** The number of tries of the first entry. */
  readonly tries: number
  /** The error of the last try. */
  readonly error: string | undefined
  /** A person has put something else than entries there: nothing of it can be delivered before they mend it. */
  readonly isDamaged: boolean
}

/** The number of entries that stops a document: 100 of 1 KB at most are no burden, and its next mover has to wait for its callbacks. */
export const MOST_OPEN = 100
/** The part of a reason that is kept. */
const LONGEST_REASON = 500
/** The replica that has recorded an outcome delivers it; others leave it alone for this long. */
const RECORDER_FIRST_MS = 2_000

/**
 * Finds due outboxes, for each callback that a replica has, in its lifecycle's phases: others may share the collection. A key each where nothing
 * is due. Only for lifecycles with callbacks.
 */
export const outboxIndex = (progress: string): Readonly<Record<string, 1>> => ({
  [`${progress}.outbox.next`]: 1,
  phase: 1,
  [`${progress}.outbox.dueAt`]: 1,
})

/** An event for callbacks, in the form that the update behind it knows. `to`: absent if the document stays in its phase. */
export interface NewEvent {
  readonly outcome: RecordedOutcome
  readonly to?: string | undefined
  readonly step?: string | null
  readonly reason?: string | null
  readonly by: string
}

/** The callbacks that the end of a step calls for, of those that are declared. */
export function callbacksAfter({ callbacks }: Pick<Terms, 'callbacks'>, end: EndKind): readonly CallbackName[] {
  if (!callbacks) return []
  if (end.kind === 'park') return only(callbacks, ['onParked'])
  if (end.kind !== 'moveTo') return []
  return only(callbacks, end.by === 'deadline' ? ['onTimeout', 'onMoved'] : ['onMoved'])
}

const only = (declared: readonly CallbackName[], names: readonly CallbackName[]) =>
  names.filter((name) => declared.includes(name))

/** The addition of a step's end to `progress`; undefined: nothing. */
export function outboxAfter(terms: Terms, end: EndKind, token: string): Document | undefined {
  const names = callbacksAfter(terms, end)
  if (names.length === 0) return undefined
  const { step } = end
  if (end.kind !== 'moveTo') {
    const reason = 'reason' in end ? (end.reason ?? null) : null
    return { outbox: outboxWith(terms, names, { outcome: 'park', step, reason, by: token }, RECORDER_FIRST_MS) }
  }
  const outcome = end.by === 'deadline' ? 'deadline' : 'moveTo'
  const event = { outcome, to: end.to, step, reason: end.reason, by: token } as const
  return { outbox: outboxWith(terms, names, event, RECORDER_FIRST_MS) }
}

/** The addition of a state rule to `progress`; undefined: nothing. */
export function outboxAfterRule(terms: Terms, to: string, reason: string): Document | undefined {
  const names = only(terms.callbacks ?? [], ['onMoved'])
  if (names.length === 0) return undefined
  return { outbox: outboxWith(terms, names, { outcome: 'rule', to, reason, by: 'rule' }, 0) }
}

/** The addition to `progress` where an owner parks a document; nothing without a callback for it. */
export function outboxAfterPark(terms: Terms, why: Pick<NewEvent, 'by' | 'reason'>): Document {
  const names = only(terms.callbacks ?? [], ['onParked'])
  return names.length === 0 ? {} : { outbox: outboxWith(terms, names, { outcome: 'park', ...why }, 0) }
}

/** The addition of a removal to `progress`: the last entry there will be. */
export const outboxAfterRemoval = (
  terms: Terms,
  callbacks: readonly CallbackName[],
  why: Pick<NewEvent, 'by' | 'reason'>,
): Document => ({
  outbox: outboxWith(
    terms,
    [callbacks.includes('onRemoved') ? 'onRemoved' : 'delete'],
    { outcome: 'remove', ...why },
    0,
  ),
})

/** Matches documents with room in their outbox, which a rule may move. */
export const hasRoom = ({ callbacks, progress }: Terms): Document =>
  callbacks ? { [`${progress}.outbox.open.${MOST_OPEN - 1}`]: { $exists: false } } : {}

/**
 * The outbox with one more entry for each of the callbacks. If it was empty, it is due after `restMs`; otherwise the process that delivers the
 * earlier entries goes on with it.
 */
function outboxWith(terms: Terms, names: readonly EntryName[], event: NewEvent, restMs: number): Document {
  const field = `$${terms.progress}.outbox`
  const now = '$$NOW'
  const added = names.map((callback, i) => ({
    seq: { $add: ['$$seq', i + 1] },
    callback: literal(callback),
    at: now,
    from: '$phase',
    to: event.to === undefined ? '$phase' : literal(event.to),
    step: literal(event.step ?? null),
    outcome: literal(event.outcome),
    reason: literal(event.reason?.slice(0, LONGEST_REASON) ?? null),
    by: literal(event.by),
  }))
  const vars = {
    open: { $cond: [{ $isArray: `${field}.open` }, `${field}.open`, []] },
    seq: countAt(`${field}.seq`),
  }
  const first = { next: literal(names[0]), dueAt: restMs > 0 ? { $add: [now, restMs] } : now }
  const more = {
    seq: { $add: ['$$seq', names.length] },
    open: { $concatArrays: ['$$open', added] },
  }
  const isEmpty = { $eq: [{ $size: '$$open' }, 0] }
  return { $let: { vars, in: { $mergeObjects: [{ $cond: [isEmpty, first, field] }, more] } } }
}

/** Reads the outbox in a document's progress. A person may have put anything there: other values than entries are ignored. */
export function outboxIn(progress: unknown): Outbox {
  const { open, dueAt, by, tries, error } = Object(Object(progress)['outbox']) as Document
  return {
    open: Array.isArray(open) ? open.filter(isEntry) : [],
    isDamaged: open != null && (!Array.isArray(open) || (open.length > 0 && !isEntry(open[0]))),
    dueAt: dueAt instanceof Date ? dueAt : undefined,
    by: typeof by === 'string' ? by : undefined,
    tries: typeof tries === 'number' ? tries : 0,
    error: typeof error === 'string' ? error : undefined,
  }
}

const isEntry = (one: unknown): one is OutboxEntry => {
  const { seq, callback } = Object(one) as Document
  return typeof seq === 'number' && typeof callback === 'string'
}
