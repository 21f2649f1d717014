import type { Document } from 'mongodb'
import { type HistoryEntry, idKey, parseToken, RECORDED_OUTCOMES, readOwnFields } from '../../lock/index.js'
import { didYouMean } from '../../options/index.js'
import { type DocumentEvent, Events } from '../../phases/index.js'
import { idsMeantBy } from '../system/document-id.js'
import { UsageError } from '../system/errors.js'
import { modelOf, type System } from '../system/system.js'

export interface EventsRequest {
  /** The id of a document, as people write it; includes the entries of its own history. */
  readonly id?: string | undefined
  readonly lifecycle?: string | undefined
  readonly replica?: string | undefined
  readonly outcome?: string | undefined
  readonly since?: Date | undefined
  readonly until?: Date | undefined
  /** The maximum number of events, the newest ones. Default 50. */
  readonly limit?: number | undefined
}

/**
 * Events of documents, the newest first. For one document it includes entries that only its own history has: rules, owners' actions, and
 * all entries if its lifecycle keeps no events.
 * @example await listEvents(system, { id: 'order-4711' }) // { events: [{ at, lifecycle: 'order', document: 'order-4711', from: 'Packing', to: 'Sent', outcome: 'moveTo', ... }], more: false }
 * @throws UsageError for an unknown lifecycle or outcome, or an id that can't be one
 */
export async function listEvents(
  system: System,
  { id, limit = 50, ...request }: EventsRequest = {},
): Promise<{ readonly events: readonly DocumentEvent[]; readonly more: boolean }> {
  const { lifecycle, outcome } = request
  if (outcome !== undefined && !RECORDED_OUTCOMES.some((known) => known === outcome))
    throw new UsageError(
      `expected an outcome (${RECORDED_OUTCOMES.join(', ')}), got '${outcome}'${didYouMean(outcome, RECORDED_OUTCOMES)}`,
    )
  if (lifecycle !== undefined && system.models.length > 0) modelOf(system, lifecycle)
  const documents = id === undefined ? undefined : idsMeantBy(id)
  const kept = await new Events(system.db).list({ ...request, documents, limit: Math.min(limit + 1, 10_000) })
  const own = documents ? await fromHistories(system, documents, request) : []
  const keyOf = (one: DocumentEvent) => `${one.lifecycle} ${idKey(one.document)} ${one.by} ${one.outcome}`
  const known = new Set(kept.map(keyOf))
  const all = [...kept, ...own.filter((one) => !known.has(keyOf(one)))]
  const events = all.sort((a, b) => b.at.getTime() - a.at.getTime())
  return { events: events.slice(0, limit), more: events.length > limit }
}

/** The events in the histories of documents: the newest 20 of each. */
async function fromHistories(
  { db, models }: System,
  ids: readonly unknown[],
  { lifecycle, replica, outcome, since, until }: Omit<EventsRequest, 'id' | 'limit'>,
): Promise<DocumentEvent[]> {
  const meant = models.filter(({ name }) => lifecycle === undefined || name === lifecycle)
  const all = await Promise.all(
    meant.map(async ({ name, collection, phases, settings: { progress } }) => {
      const filter = { _id: { $in: [...ids] as never[] } }
      const projection = { phase: 1, [`${progress}.history`]: 1 }
      const found = await readOwnFields((how) =>
        db
          .collection(collection)
          .find(filter, { projection, ...how })
          .toArray(),
      )
      const own = found.filter(({ phase }) => phases.has(phase))
      return own.flatMap((document) => eventsIn(document, name, progress))
    }),
  )
  const isMeant = (one: DocumentEvent) =>
    (replica === undefined || one.replica === replica) &&
    (outcome === undefined || one.outcome === outcome) &&
    (!since || one.at >= since) &&
    (!until || one.at < until)
  return all.flat().filter(isMeant)
}

function eventsIn(document: Document, lifecycle: string, progress: string): DocumentEvent[] {
  const history: unknown = document[progress]?.history
  if (!Array.isArray(history)) return []
  return history.flatMap((entry: Partial<HistoryEntry> | null) => {
    const { at, from, to, step = null, outcome, reason = null, by, ms = 0 } = entry ?? {}
    if (!(at instanceof Date) || !from || !to || !outcome || typeof by !== 'string') return []
    const replica = parseToken(by)?.replica ?? '-'
    return [{ at, lifecycle, document: document['_id'], from, to, step, outcome, reason, ms: Number(ms), replica, by }]
  })
}
