import type { Db } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { checkOptions, t } from '../../options/index.js'
import { AUDIT_COLLECTION, type AuditOutcome } from './audit-log.js'
import { newestRecords, RECORD_QUERY, type RecordQuery } from './records.js'

/** An action of a person, and its result. */
export interface AuditEntry {
  /** The time when it began, by the server's clock. */
  readonly at: Date
  /** The person who did it. */
  readonly by: string
  /** The reason; null: none was given. */
  readonly why: string | null
  /** The action's name, such as `wake`, `unpark` or `limits set`. */
  readonly action: string
  /** The lifecycle of the document that it was about; absent: it was about something else. */
  readonly lifecycle?: string
  /** The document's `_id`; absent: it was about something else, or about many. */
  readonly document?: unknown
  /** The subject, where that isn't a document: `limit gitlab-api`. */
  readonly target?: string
  /** The data before the change; absent: nothing changed, or it isn't known. */
  readonly before?: unknown
  /** The data after the change. */
  readonly after?: unknown
  /** The result. `unknown`: the process that acted was gone before it could record the result. */
  readonly outcome: AuditOutcome
  /** The reason why nothing was done. */
  readonly problem?: string
}

/** The audit entries to list. */
export interface AuditQuery extends RecordQuery {
  /** Only the actions of this person. */
  readonly by?: string | undefined
  /** Only this action, such as `wake`. */
  readonly action?: string | undefined
}

const query = t.object({ ...RECORD_QUERY, by: t.optional(t.name), action: t.optional(t.name) })

/**
 * The actions of people on a database's documents, by the command line or as owners who pass `audit` (docs/audit.md).
 * @example
 * ```ts
 * await orders.wake('order-4711', { audit: { by: 'ana', reason: 'the truck is here' } })
 * await new Audit(db).list({ by: 'ana' }) // [{ at, by: 'ana', why: 'the truck is here', action: 'wake', document: 'order-4711', outcome: 'done', ... }]
 * ```
 * @throws InvalidOptions for what isn't a database
 */
export class Audit {
  constructor(private readonly db: Db) {
    checkOptions('new Audit', t.object({ db: t.aDatabase }), { db })
  }

  /**
   * Lists entries, the newest first.
   * @throws InvalidOptions
   */
  async list(options: AuditQuery = {}): Promise<readonly AuditEntry[]> {
    const asked = checkOptions('audit.list', query, options)
    const found = await newestRecords(protocolCollection(this.db, AUDIT_COLLECTION), asked)
    return found as unknown as readonly AuditEntry[]
  }
}
