import type { Document, Filter } from 'mongodb'
import { changedFields, idKey, isAsSeen, isSeen, seenOf } from '../../lock/index.js'
import { Audit } from '../../phases/index.js'
import { fromNow } from '../../time/index.js'
import { idText, idTyped } from '../system/document-id.js'
import { NotFound, Refused, UsageError } from '../system/errors.js'
import { modelOf, type System } from '../system/system.js'
import { type Found, readDocuments } from './find.js'

/** The digest of a document as it was read. Given to an action as `seen`, the action does nothing if the document has changed since. */
export const seenIn = (system: System, { lifecycle, document }: Pick<Found, 'lifecycle' | 'document'>): string =>
  seenOf(document, modelOf(system, lifecycle).settings)

/**
 * The condition that a document is still as a person saw it, for the filter of an action's own write; undefined: nothing was given.
 * @throws UsageError for what isn't a digest; Refused if it has changed already
 */
export async function requireSeen(
  system: System,
  found: Found,
  seen: string | undefined,
): Promise<Filter<Document> | undefined> {
  if (seen === undefined) return undefined
  if (!isSeen(seen))
    throw new UsageError(
      `expected what was seen of it, 24 hex digits, got '${seen.slice(0, 50)}'`,
      undefined,
      `see: phaselock why ${idTyped(found.document['_id'])}`,
    )
  if (seenIn(system, found) !== seen) throw await changedSince(system, found, seen)
  return isAsSeen(found.document, modelOf(system, found.lifecycle).settings)
}

/** Finds out whether an action changed nothing because the document is no longer as it was seen. @throws Refused, NotFound then */
export async function requireStillSeen(system: System, found: Found, seen: string | undefined): Promise<void> {
  if (seen === undefined) return
  const { lifecycle, document } = found
  const id: unknown = document['_id']
  const [now] = await readDocuments(system, modelOf(system, lifecycle), { _id: id as never }, 1)
  if (!now) {
    const problem = `${lifecycle} ${idText(id)} has been deleted since it was seen`
    throw new NotFound(problem, { reason: 'noDocument', id, lifecycles: [lifecycle] })
  }
  if (seenIn(system, now) !== seen) throw await changedSince(system, now, seen)
}

/**
 * The refusal of an action on a document that has changed since it was seen: with what has changed, and by whom.
 * @param known the change, where it isn't one of the document's own fields
 */
export async function changedSince(
  system: System,
  now: Found,
  seen: string,
  known?: { readonly by: string; readonly did: string },
): Promise<Refused> {
  const { lifecycle, document } = now
  const id: unknown = document['_id']
  const { settings } = modelOf(system, lifecycle)
  const changed = changedFields(seen, document, settings)
  const last: Change | undefined = known ? { ...known, at: null } : await lastChange(system, now)
  const what = changed.length > 0 ? ` (${changed.join(', ')})` : ''
  const who = last
    ? `; its last recorded change: ${last.did}, by ${last.by}${last.at ? `, ${fromNow(last.at, now.now)}` : ''}`
    : ''
  return new Refused(
    `${lifecycle} ${idText(id)} has changed since it was seen${what}, so nothing was done${who}`,
    { reason: 'changedSince', lifecycle, id, changed, last: last ?? null, seen: seenIn(system, now) },
    `look again: phaselock why ${idTyped(id)}`,
  )
}

interface Change {
  readonly by: string
  readonly did: string
  readonly at: Date | null
}
type LastChange = Change & { readonly at: Date }

/** Of the entries of the audit that are looked at, some are of attempts that changed nothing. */
const MOST_ENTRIES = 10

/** The newest change of a document that its history or the audit has. Not each is there: a wake leaves no history, and not all who act keep an audit. */
async function lastChange(system: System, { lifecycle, document }: Found): Promise<LastChange | undefined> {
  const query = { lifecycle, documents: [document['_id']], limit: MOST_ENTRIES }
  const audited = await new Audit(system.db).list(query).catch(() => [])
  const done = audited
    .filter((one) => one.outcome === 'done' && idKey(one.document) === idKey(document['_id']))
    .map(({ by, action, why, at }) => ({ by, did: why === null ? action : `${action} (${why})`, at }))
  const history: unknown = document[modelOf(system, lifecycle).settings.progress]?.history
  const entries = (Array.isArray(history) ? history : []).flatMap((entry): LastChange[] => {
    const { at, by, outcome, reason } = Object(entry) as Document
    if (!(at instanceof Date) || typeof by !== 'string' || typeof outcome !== 'string') return []
    return [{ by, did: typeof reason === 'string' ? `${outcome} (${reason})` : outcome, at }]
  })
  return [...done, ...entries].sort((a, b) => b.at.getTime() - a.at.getTime())[0]
}
