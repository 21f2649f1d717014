import type { Document } from 'mongodb'
import { type HistoryEntry, idKey, parseToken, RECORDED_OUTCOMES, readOwnFields } from '../../lock/index.js'
import { didYouMean } from '../../options/index.js'
import {
  Audit,
  type AuditEntry,
  type AuditQuery,
  type DocumentEvent,
  Events,
  type EventsQuery,
} from '../../phases/index.js'
import { idsMeantBy } from '../system/document-id.js'
import { UsageError } from '../system/errors.js'
import { modelOf, type System } from '../system/system.js'

/** What to list of which document. */
interface OfDocument {
  /** The id of a document, as people write it; of events it includes the entries of the document's own history. */
  readonly id?: string | undefined
}
export type EventsRequest = Omit<EventsQuery, 'documents'> & OfDocument
export type AuditRequest = Omit<AuditQuery, 'documents'> & OfDocument

/** Records, the newest first. `more`: there are others that were not asked for. */
export interface Listed<T> {
  readonly records: readonly T[]
  readonly more: boolean
}

/** The query for a request: for one record more than is asked for, which shows that there are more. */
function queryOf<T extends EventsRequest | AuditRequest>(system: System, { id, limit = 50, ...request }: T) {
  if (request.lifecycle !== undefined && system.models.length > 0) modelOf(system, request.lifecycle)
  const documents = id === undefined ? undefined : idsMeantBy(id)
  const shown = <R>(all: readonly R[]): Listed<R> => ({ records: all.slice(0, limit), more: all.length > limit })
  return { query: { ...request, documents, limit: Math.min(limit + 1, 10_000) }, documents, shown }
}

/**
 * The actions of people, the newest first.
 * @example await listAudit(system, { id: 'shop' }) // { records: [{ at, by: 'ana', action: 'wake', document: 'shop', outcome: 'done', ... }], more: false }
 * @throws UsageError for an unknown lifecycle, or an id that can't be one
 */
export async function listAudit(system: System, request: AuditRequest = {}): Promise<Listed<AuditEntry>> {
  const { query, shown } = queryOf(system, request)
  return shown(await new Audit(system.db).list(query))
}

/**
 * Events of documents, the newest first. For one document it includes entries that only its own history has: rules, owners' actions, and
 * all entries if its lifecycle keeps no events.
 * @example await listEvents(system, { id: 'order-4711' }) // { records: [{ at, lifecycle: 'order', document: 'order-4711', from: 'Packing', to: 'Sent', outcome: 'moveTo', ... }], more: false }
 * @throws UsageError for an unknown lifecycle or outcome, or an id that can't be one
 */
export async function listEvents(system: System, request: EventsRequest = {}): Promise<Listed<DocumentEvent>> {
  const { outcome } = request
  if (outcome !== undefined && !RECORDED_OUTCOMES.some((known) => known === outcome))
    throw new UsageError(
      `expected an outcome (${RECORDED_OUTCOMES.join(', ')}), got '${outcome}'${didYouMean(outcome, RECORDED_OUTCOMES)}`,
    )
  const { query, documents, shown } = queryOf(system, request)
  const kept = await new Events(system.db).list(query)
  const own = documents ? await fromHistories(system, documents, request) : []
  const keyOf = (one: DocumentEvent) => `${one.lifecycle} ${idKey(one.document)} ${one.by} ${one.outcome}`
  const known = new Set(kept.map(keyOf))
  const all = [...kept, ...own.filter((one) => !known.has(keyOf(one)))]
  return shown(all.sort((a, b) => b.at.getTime() - a.at.getTime()))
}

/** The events in the histories of documents: the newest 20 of each. */
async function fromHistories(
  { db, models }: System,
  ids: readonly unknown[],
  { lifecycle, replica, outcome, since, until }: EventsRequest,
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
