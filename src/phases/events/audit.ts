import {
  BSON,
  type ClientSession,
  type Collection,
  type Db,
  type Document,
  type IndexDescription,
  ObjectId,
} from 'mongodb'
import { isNetworkError, protocolCollection } from '../../database/index.js'
import { literal } from '../../lock/index.js'
import { checkOptions, t } from '../../options/index.js'
import type { Duration } from '../../time/index.js'
import { newestRecords, RECORD_QUERY, type RecordQuery, removeOldest, unlessUnauthorized } from './records.js'

/** The collection of all audited actions: the person, the action, the documents, the time and the reason. */
export const AUDIT_COLLECTION = 'phaselock.audit'

/** The person who acts, for the audit (docs/audit.md). */
export interface AuditOptions {
  /** The person's name: at most 200 characters. */
  readonly by: string
  /** The reason: at most 500 characters. Default: none is given. */
  readonly reason?: string | undefined
  /** The time that the entry is kept, 1 h to 3650 d. Default 90d. */
  readonly keepFor?: Duration | undefined
}

/** The result of an action. `unknown`: the process that acted was gone before it could record the result, so the action may have been done or not. */
export type AuditOutcome = 'done' | 'unchanged' | 'refused' | 'unknown'

/** An action, and its subject. */
export interface AuditedAction {
  /** The action's name, such as `wake`, `unpark` or `limits set`. */
  readonly action: string
  /** The lifecycle of the document that it is about; absent: it is about something else. */
  readonly lifecycle?: string | undefined
  /** The document's `_id`; absent: it is about something else, or about many. */
  readonly document?: unknown
  /** The subject, where that isn't a document: `limit gitlab-api`. */
  readonly target?: string | undefined
  /** The data before the change. */
  readonly before?: unknown
}

/** The end of an action, as its entry stores it. */
export interface AuditedEnd {
  /** The end of the action. */
  readonly outcome: AuditOutcome
  /** The reason why nothing was done. */
  readonly problem?: string | undefined
  /** The data before the change as the action itself found it, where it wasn't read earlier. */
  readonly before?: unknown
  /** The data after the change. */
  readonly after?: unknown
}

/** The person who asks for an action, and the reason, as options. */
export const ASKED_BY = {
  by: t.checked(t.name, ({ length }) => length <= 200, 'expected at most 200 characters'),
  reason: t.optional(t.checked(t.text, ({ length }) => length <= 500, 'expected at most 500 characters')),
}

/** The former name of a reason. Entries keep it: they are stored as `why`. */
export const FORMER_REASON = { renamed: { why: 'reason' } } as const

const auditOptions = t.object({
  ...ASKED_BY,
  keepFor: t.withDefault(t.duration('1h', '3650d'), '90d'),
})

/** @throws InvalidOptions */
export function checkedAudit(options: unknown): {
  readonly by: string
  readonly reason: string | null
  keepForMs: number
} {
  const { by, reason = null, keepFor } = checkOptions('audit', auditOptions, options, FORMER_REASON)
  return { by, reason, keepForMs: keepFor }
}

/** The most bytes of `before`, and of `after`: an entry stays small, whatever it is about. */
const MOST_BYTES = 4_096
const MOST_MS = 5_000
/** The number of entries that are kept: the newest, however young the others are. */
const MOST_ENTRIES = 500_000
const COUNTED_EVERY = 1_000

type Entries = Collection<Document & { _id: ObjectId }>
const preparedDatabases = new WeakMap<Db, Promise<void>>()
let written = 0

/**
 * Runs an action and keeps an entry of it. The entry is stored before the action, with the outcome `unknown`, and completed after it: a crash between
 * leaves an entry with the outcome `unknown`. An action whose entry can't be stored isn't done.
 * @param session the caller's transaction: entry and action are stored together, or neither is
 */
export async function audited<T>(
  db: Db,
  options: AuditOptions,
  action: AuditedAction,
  { session, act, ended }: Audited<T>,
): Promise<T> {
  const who = checkedAudit(options)
  const entries: Entries = protocolCollection(db, AUDIT_COLLECTION)
  await prepared(db, entries)
  const inSession = session ? { session } : {}
  const _id = new ObjectId()
  const { before, ...about } = action
  const entry = {
    ...about,
    by: who.by,
    why: who.reason,
    outcome: 'unknown',
    ...(before !== undefined && { before: small(before) }),
  }
  const fields = Object.entries(entry).filter(([, value]) => value !== undefined)
  const stored = Object.fromEntries(fields.map(([field, value]) => [field, literal(value)]))
  const times = { at: '$$NOW', expiresAt: { $add: ['$$NOW', who.keepForMs] } }
  await entries.updateOne({ _id }, [{ $set: { ...stored, ...times } }], { upsert: true, ...inSession })
  const complete = ({ outcome, problem, before, after }: AuditedEnd) => {
    const end = {
      outcome,
      ...(problem && { problem: problem.slice(0, 1_000) }),
      ...(before !== undefined && { before: small(before) }),
      ...(after !== undefined && { after: small(after) }),
    }
    return entries.updateOne({ _id }, { $set: end }, inSession)
  }
  let result: T
  try {
    result = await act()
  } catch (error) {
    const problem = String((error as Error).message)
    // When the connection ends, the command may have reached the server or not. A transaction's end isn't ours to record either.
    const end: AuditedEnd = { outcome: isNetworkError(error) ? 'unknown' : 'refused', problem }
    if (!session) await complete(end).catch(() => undefined)
    throw error
  }
  // It is done, even if that can't be recorded; inside a transaction nothing is until it is committed.
  const completed = complete(ended(result))
  await (session ? completed : completed.catch(() => undefined))
  return result
}

export interface Audited<T> {
  readonly session?: ClientSession | undefined
  act(): Promise<T>
  ended(result: T): AuditedEnd
}

/** Creates the indexes: entries expire, and are found by document and by time. Runs with the first entry of a process. */
function prepared(db: Db, entries: Entries): Promise<void> {
  const known = preparedDatabases.get(db)
  if (known && ++written % COUNTED_EVERY !== 0) return known
  const preparing = prepare(entries)
  preparedDatabases.set(db, preparing)
  preparing.catch(() => preparedDatabases.delete(db))
  return preparing
}

const INDEXES: IndexDescription[] = [
  { key: { expiresAt: 1 }, expireAfterSeconds: 0 },
  { key: { at: -1 } },
  { key: { document: 1, at: -1 } },
]

const prepare = (entries: Entries): Promise<void> =>
  unlessUnauthorized(async () => {
    await entries.createIndexes(INDEXES, { maxTimeMS: MOST_MS })
    await forgetOldest(entries)
  })

/** Removes the oldest entries beyond `most`. */
export const forgetOldest = (entries: Entries, most = MOST_ENTRIES): Promise<number> =>
  removeOldest(entries as never as Collection, most, { maxTimeMS: MOST_MS })

/** A value as it is stored in an entry: one that is too large is only named. */
function small(value: unknown): unknown {
  const bytes = BSON.calculateObjectSize({ value })
  return bytes <= MOST_BYTES ? value : `(${bytes} bytes: too large for the audit)`
}

/** The end of an action by its owner's verdict. */
export function endOfVerdict(verdict: string, after: unknown): AuditedEnd {
  if (['done', 'asked', 'stopped'].includes(verdict)) return { outcome: 'done', after }
  return verdict === 'unchanged' ? { outcome: 'unchanged' } : { outcome: 'refused', problem: verdict }
}

/** An action of a person, and its result. */
export interface AuditEntry extends AuditedAction, AuditedEnd {
  /** The time when it began, by the server's clock. */
  readonly at: Date
  /** The person who did it. */
  readonly by: string
  /** The reason; null: none was given. */
  readonly why: string | null
  /** The data before the change; absent: nothing changed, or it isn't known. */
  readonly before?: unknown
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
