import { type EntryName, isLastEntry, isRemovedPhase, outboxIn, PARKED_AT, removedPhase } from '../../lock/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import { fromNow } from '../../time/index.js'

/** A document whose callbacks haven't been told of all that became of it. */
export interface Untold {
  readonly lifecycle: string
  readonly _id: unknown
  /**
   * The callback that is told next, and of which event; `delete`: none is left, and the document is deleted; `damaged`: a person has put
   * something else there, and has to mend it.
   */
  readonly callback: EntryName | 'damaged'
  readonly seq: number
  readonly from: string
  readonly to: string
  /** When it happened. */
  readonly at: Date
  /** How many are to be told, this one among them. */
  readonly open: number
  /** How often it was tried; with one that runs now. */
  readonly tries: number
  /** Why the last try failed; null: none has. */
  readonly error: string | null
  /** When it is tried next, or given up by who tries it now; null: when a person says so. */
  readonly dueAt: Date | null
  /** The phase of the document, where it is removed and this is the last to be told: it is deleted then. */
  readonly removed: string | undefined
}

/** What a document's callbacks haven't been told yet; undefined: nothing. */
export function untoldOf(document: Readonly<Record<string, unknown>>, model: LifecycleModel): Untold | undefined {
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
export function untoldText({ callback, from, to, open, tries, error, dueAt }: Untold, now: Date): string {
  if (callback === 'damaged')
    return 'What its callbacks are to be told is damaged: mend progress.outbox by hand, or remove it.'
  if (callback === 'delete') return 'Its callbacks have been told of all: the next look deletes it.'
  const calls = open === 1 ? 'A call of its callbacks is to come' : `${open} calls of its callbacks are to come`
  const of = from === to ? `in ${from}` : `of ${from} -> ${to}`
  const failed = error === null ? '' : `, tried ${tries === 1 ? 'once' : `${tries} times`}: '${error}'`
  const next = dueAt ? `next ${fromNow(dueAt, now)}` : 'it waits for a person (phaselock callbacks retry)'
  return `${calls}: ${callback} ${of}${failed}; ${next}.`
}
