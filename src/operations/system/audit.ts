import { Audit, type AuditEntry, type AuditedAction, type AuditedEnd, audited } from '../../phases/index.js'
import { idsMeantBy } from './document-id.js'
import { modelOf, type System } from './system.js'

/**
 * Runs an action, and records it in the audit if the system names an author.
 * @param ended the meaning of its result for the entry. Default: it is done
 */
export const recorded = <T>(
  { db, audit }: System,
  about: AuditedAction,
  act: () => Promise<T>,
  ended: (result: T) => AuditedEnd = () => ({ outcome: 'done' }),
): Promise<T> => (audit ? audited(db, audit, about, { act, ended }) : act())

export interface AuditRequest {
  /** The id of a document, as people write it. */
  readonly id?: string | undefined
  readonly lifecycle?: string | undefined
  readonly by?: string | undefined
  readonly action?: string | undefined
  readonly since?: Date | undefined
  readonly until?: Date | undefined
  /** The maximum number of entries, the newest ones. Default 50. */
  readonly limit?: number | undefined
}

/**
 * The actions of people, the newest first.
 * @example await listAudit(system, { id: 'shop' }) // { entries: [{ at, by: 'ana', action: 'wake', document: 'shop', outcome: 'done', ... }], more: false }
 * @throws UsageError for an unknown lifecycle, or an id that can't be one
 */
export async function listAudit(
  system: System,
  { id, limit = 50, ...request }: AuditRequest = {},
): Promise<{ readonly entries: readonly AuditEntry[]; readonly more: boolean }> {
  if (request.lifecycle !== undefined && system.models.length > 0) modelOf(system, request.lifecycle)
  const documents = id === undefined ? undefined : idsMeantBy(id)
  const entries = await new Audit(system.db).list({ ...request, documents, limit: Math.min(limit + 1, 10_000) })
  return { entries: entries.slice(0, limit), more: entries.length > limit }
}
