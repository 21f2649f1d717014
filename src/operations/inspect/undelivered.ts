import { type EntryName, isLastEntry, isRemovedPhase, outboxIn, PARKED_AT, removedPhase } from '../../lock/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import { fromNow } from '../../time/index.js'

/** A document with undelivered callbacks. */
export interface UndeliveredCallback {
  readonly lifecycle: string
  readonly _id: unknown
  /**
   * The callback that is called next. `delete`: all are delivered, and the document is deleted. `damaged`: a user has stored something else
   * there, and has to repair it.
   */
  readonly callback: EntryName | 'damaged'
  readonly seq: number
  readonly from: string
  readonly to: string
  /** When it happened. */
  readonly at: Date
  /** The number of undelivered calls, including this one. */
  readonly open: number
  /** The number of tries, including one that runs now. */
  readonly tries: number
  /** The error of the last try; null if none has failed. */
  readonly error: string | null
  /** When it is tried next, or is given up by the replica that tries it now; null if it waits until a person retries it. */
  readonly dueAt: Date | null
  /** The phase of the document, if it is removed and this is its last call: it is deleted afterwards. */
  readonly removed: string | undefined
}

/** The undelivered callbacks of a document; undefined if all are delivered. */
export function undeliveredOf(
  document: Readonly<Record<string, unknown>>,
  model: LifecycleModel,
): UndeliveredCallback | undefined {
  const { name, settings } = model
  const { phase } = document
  if (!settings.callbacks || (isRemovedPhase(phase) && phase !== removedPhase(name))) return undefined
  const { open, dueAt, tries, error = null, isDamaged } = outboxIn(document[settings.progress])
  if (isDamaged) {
    const [here, at] = [String(phase), document['updatedAt']]
    const about = {
      callback: 'damaged',
      seq: 0,
      from: here,
      to: here,
      at: at instanceof Date ? at : new Date(0),
    } as const
    return { lifecycle: name, _id: document['_id'], ...about, dueAt: null, open: 1, tries, error, removed: undefined }
  }
  const first = open[0]
  if (!first) return undefined
  const { callback, seq, from, to, at } = first
  const isParked = dueAt !== undefined && dueAt >= PARKED_AT
  const next = { dueAt: isParked || !dueAt ? null : dueAt, open: open.length, tries, error }
  const removed = isLastEntry(first) && phase === removedPhase(name) ? removedPhase(name) : undefined
  return { lifecycle: name, _id: document['_id'], callback, seq, from, to, at, ...next, removed }
}

/** The same for people: ` 2 calls of its callbacks are to come: onMoved of First -> Second, ...`. */
export function undeliveredText(
  { callback, from, to, open, tries, error, dueAt }: UndeliveredCallback,
  now: Date,
): string {
  if (callback === 'damaged')
    return 'What its callbacks are to be told is damaged: mend progress.outbox by hand, or remove it.'
  if (callback === 'delete') return 'Its callbacks have been told of all: the next look deletes it.'
  const calls = open === 1 ? 'A call of its callbacks is to come' : `${open} calls of its callbacks are to come`
  const of = from === to ? `in ${from}` : `of ${from} -> ${to}`
  const failed = error === null ? '' : `, tried ${tries === 1 ? 'once' : `${tries} times`}: '${error}'`
  const next = dueAt ? `next ${fromNow(dueAt, now)}` : 'it waits for a person (phaselock callbacks retry)'
  return `${calls}: ${callback} ${of}${failed}; ${next}.`
}
