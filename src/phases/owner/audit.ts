import type { Db, Document, Filter } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { readOwnFields } from '../../lock/index.js'
import { checkOptions, t } from '../../options/index.js'
import { AUDIT_COLLECTION, type AuditOutcome } from './audit-log.js'

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
export interface AuditQuery {
  /** Only about documents of this lifecycle. */
  readonly lifecycle?: string | undefined
  /** Only about documents with one of these `_id`s. */
  readonly documents?: readonly unknown[] | undefined
  /** Only what they did. */
  readonly by?: string | undefined
  /** Only this action, such as `wake`. */
  readonly action?: string | undefined
  /** Only what was done from this time on. */
  readonly since?: Date | undefined
  /** Only what was done before this time. */
  readonly until?: Date | undefined
  /** At most this many, 1 to 10,000: the newest. Default 50. */
  readonly limit?: number | undefined
}

const aDate = t.where<Date>((value) => value instanceof Date && !Number.isNaN(value.getTime()), t.expecting('a date'))
const query = t.object({
  lifecycle: t.optional(t.aName),
  documents: t.anything<readonly unknown[]>(),
  by: t.optional(t.aName),
  action: t.optional(t.aName),
  since: t.optional(aDate),
  until: t.optional(aDate),
  limit: t.withDefault(t.whole(1, 10_000), 50),
})

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
    const { documents, since, until, limit, ...exactly } = checkOptions('audit.list', query, options)
    const equal = Object.entries(exactly).flatMap(([field, value]) =>
      value === undefined ? [] : [[field, { $eq: value }]],
    )
    const filter: Filter<Document> = {
      ...Object.fromEntries(equal),
      ...(documents && { document: { $in: [...documents] } }),
      ...((since || until) && { at: { ...(since && { $gte: since }), ...(until && { $lt: until }) } }),
    }
    const entries = protocolCollection(this.db, AUDIT_COLLECTION)
    const projection = { _id: 0, expiresAt: 0 }
    const found = await readOwnFields((how) =>
      entries
        .find(filter, { projection, ...how })
        .sort({ at: -1 })
        .limit(limit)
        .toArray(),
    )
    return found as unknown as readonly AuditEntry[]
  }
}
