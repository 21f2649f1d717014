import type { Db } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { checkOptions, t } from '../../options/index.js'
import { AUDIT_COLLECTION, type AuditOutcome } from './audit-log.js'
import { newestRecords, RECORD_QUERY, type RecordQuery, recordFilter } from './record-query.js'

/** What somebody did, and what became of it. */
export interface AuditEntry {
  /** When it was begun, by the server's clock. */
  readonly at: Date
  /** Who did it. */
  readonly by: string
  /** Why; null: nobody has said. */
  readonly why: string | null
  /** Such as `wake`, `unpark` or `limits set`. */
  readonly action: string
  /** Of the document that it was about; absent: it was about something else. */
  readonly lifecycle?: string
  /** The document's `_id`; absent: it was about something else, or about many. */
  readonly document?: unknown
  /** What it was about, where that is no document: `limit gitlab-api`. */
  readonly target?: string
  /** What it changed, as it was before; absent: nothing, or nobody knows. */
  readonly before?: unknown
  /** The same as the action left it. */
  readonly after?: unknown
  /** What became of it: `unknown`: whoever did it was gone before that was noted. */
  readonly outcome: AuditOutcome
  /** Why nothing was done. */
  readonly problem?: string
}

/** Which entries of the audit are meant. */
export interface AuditQuery extends RecordQuery {
  /** Only what they did. */
  readonly by?: string | undefined
  /** Only this action, such as `wake`. */
  readonly action?: string | undefined
}

const query = t.object({ ...RECORD_QUERY, by: t.optional(t.aName), action: t.optional(t.aName) })

/**
 * What people have done to a database's documents, by the command line or as owners who say so (docs/audit.md).
 * @example
 * ```ts
 * await orders.wake('order-4711', { audit: { by: 'ana', why: 'the truck is here' } })
 * await new Audit(db).list({ by: 'ana' }) // [{ at, by: 'ana', why: 'the truck is here', action: 'wake', document: 'order-4711', outcome: 'done', ... }]
 * ```
 * @throws InvalidOptions for what isn't a database
 */
export class Audit {
  constructor(private readonly db: Db) {
    checkOptions('new Audit', t.object({ db: t.aDatabase }), { db })
  }

  /**
   * Entries, the newest first.
   * @throws InvalidOptions
   */
  async list(options: AuditQuery = {}): Promise<readonly AuditEntry[]> {
    const asked = checkOptions('audit.list', query, options)
    const entries = protocolCollection(this.db, AUDIT_COLLECTION)
    const found = await newestRecords(entries, recordFilter(asked), asked.limit)
    return found as unknown as readonly AuditEntry[]
  }
}
