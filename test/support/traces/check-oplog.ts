import type { HistoryEntry } from '../../../src/lock/index.js'
import { claimOf, OUTCOMES } from './check.js'
import type { Change } from './oplog.js'
import type { Trace } from './trace.js'

/** What clients of replicas and owners sent, and what they were told. */
export interface Sent {
  /** Each token that was in a command. */
  readonly tokens: ReadonlySet<string>
  /** Documents whose insert was acknowledged. */
  readonly inserted: readonly string[]
  /** Those whose `state` was set, by an acknowledged call. */
  readonly stated: readonly { readonly id: string; readonly state: string }[]
  /** Questions whose answer was stored, by an acknowledged call. */
  readonly answered: readonly { readonly id: string; readonly question: string }[]
  /** What callbacks were told, in their order. */
  readonly told: readonly Call[]
}

/** A call of a callback, as the outbox has it and as it was told. */
export interface Call {
  readonly id: string
  readonly seq: number
  readonly to: string
}

/** How many documents with the same value of a field may be held at once. */
export interface Slots {
  readonly field: string
  readonly each: number
}

/** A change of the lock, by what became of `lockedBy`. */
interface LockChange extends Change {
  readonly from: string | undefined
  readonly to: string | undefined
  readonly kind: 'claim' | 'pass' | 'letGo' | 'taken'
}

/**
 * What replicas were told and the oplog of a majority doesn't have, or the reverse, in words. With nothing: each outcome told as recorded is there once and each
 * told as not recorded never; each lease believed in was granted by one entry, and none was written under it after the next holder's; fences
 * grow; nobody was left without a verdict; callbacks were told of what is there, all of it and in its order; no more were held than there are slots.
 * @param lockTimeoutMs the one that all leases of the trace had
 */
export function* contradictionsOfOplog(
  trace: Trace,
  changes: readonly Change[],
  sent: Sent,
  lockTimeoutMs: number,
  slots: Slots,
): Generator<string> {
  const locks = changes.flatMap((change) => lockChange(change) ?? [])
  yield* verdicts(trace, locks)
  yield* leases(trace, locks)
  yield* holders(locks, lockTimeoutMs)
  yield* lateOutcomes(changes)
  yield* fences(changes)
  yield* commands(trace, locks, sent)
  yield* owners(changes, sent)
  yield* callbacks(changes, sent)
  yield* held(changes, lockTimeoutMs, slots)
}

function lockChange(change: Change): LockChange | undefined {
  const [from, to]: (string | undefined)[] = [change.before?.['lockedBy'], change.after?.['lockedBy']]
  if (from === to || !change.after) return undefined
  const isLetGo = endedBy(change.after) === from && endedBy(change.before) !== from
  if (to === undefined) return { ...change, from, to, kind: isLetGo ? 'letGo' : 'taken' }
  return { ...change, from, to, kind: from !== undefined && claimOf(from) === claimOf(to) ? 'pass' : 'claim' }
}

const endedBy = (document: Change['before']): unknown => document?.['progress']?.endedBy

const keyOf = (id: string, token: string) => `${id} ${token}`

/** The entry of its history that a change made under a token. */
const entryBy = ({ after, from }: LockChange): HistoryEntry | undefined =>
  ((after?.['progress']?.history ?? []) as HistoryEntry[]).find(({ by }) => by === from)

/** Each outcome that was told, and each that is there. */
function* verdicts({ verdicts, unanswered }: Trace, locks: readonly LockChange[]): Generator<string> {
  const ends = Map.groupBy(
    locks.filter(({ kind }) => kind === 'letGo' || kind === 'pass'),
    ({ id, from }) => keyOf(id, from!),
  )
  const explained = new Set<string>()
  for (const { id, token, end, verdict } of verdicts) {
    const under = ends.get(keyOf(id, token)) ?? []
    const own = under.filter((change) => OUTCOMES[end]?.includes(entryBy(change)?.outcome as never) ?? true)
    const told = `${end} of ${id} under ${token}: told as ${verdict}`
    if (verdict === 'recorded' && own.length !== 1) yield `${told}, the oplog has it ${own.length} times`
    else if ((verdict === 'lost' || verdict === 'rejected') && own.length > 0) yield `${told}, the oplog has it`
    else if (own.length > 1) yield `${told}, the oplog has it ${own.length} times`
    if (own.length > 0) explained.add(keyOf(id, token))
  }
  for (const key of ends.keys()) if (!explained.has(key)) yield `${key}: its outcome is in the oplog, nobody was told`
  for (const { id, token, end } of unanswered) yield `${end} of ${id} under ${token}: without a verdict`
}

/** Each lease that a replica believes in has one claim in the oplog; nobody writes under any other. */
function* leases({ leases }: Trace, locks: readonly LockChange[]): Generator<string> {
  const claims = Map.groupBy(
    locks.filter(({ kind }) => kind === 'claim'),
    ({ id, to }) => keyOf(id, claimOf(to!)),
  )
  const believed = new Set(leases.map(({ id, claim }) => keyOf(id, claim)))
  for (const key of believed) {
    const { length } = claims.get(key) ?? []
    if (length !== 1) yield `${key}: believed to be held, the oplog has ${length} claims of it`
  }
  for (const { id, from, kind } of locks) {
    if ((kind === 'pass' || kind === 'letGo') && !believed.has(keyOf(id, claimOf(from!)))) {
      yield `${keyOf(id, from!)}: written under a lease that nobody believed in`
    }
  }
}

/** Whoever takes a document from its holder does so after its lease has run out. */
function* holders(locks: readonly LockChange[], lockTimeoutMs: number): Generator<string> {
  for (const { id, from, to, kind, before, wall } of locks) {
    if (from === undefined || kind === 'pass' || kind === 'letGo') continue
    const heldMs = wall.getTime() - before!['lockedAt'].getTime()
    if (heldMs < lockTimeoutMs) yield `${id}: taken from ${from} by ${to ?? 'a rule'} after ${heldMs} ms`
  }
}

/** An outcome is written by the holder only. */
function* lateOutcomes(changes: readonly Change[]): Generator<string> {
  for (const { id, before, after } of changes) {
    if (!after || endedBy(after) === endedBy(before) || endedBy(after) === undefined) continue
    if (endedBy(after) !== before?.['lockedBy']) {
      yield `${id}: an outcome under ${endedBy(after)} while ${before?.['lockedBy'] ?? 'nobody'} had it`
    }
  }
}

/** In the oplog's order, and with each claim and each step. */
function* fences(changes: readonly Change[]): Generator<string> {
  for (const { id, before, after } of changes) {
    if (!before || !after) continue
    const [was, is] = [before['fence'] ?? 0, after['fence'] ?? 0]
    const lock = lockChange({ id, before, after, wall: new Date(0) })
    const mustGrow = lock?.kind === 'claim' || (lock?.kind === 'pass' && entryBy(lock)?.outcome === 'again')
    if (is < was || (mustGrow && is <= was)) {
      yield `${id}: fence ${is} after ${was} under ${after['lockedBy'] ?? before['lockedBy']}`
    }
  }
}

/** Nothing is there that nobody sent. */
function* commands({ verdicts }: Trace, locks: readonly LockChange[], { tokens }: Sent): Generator<string> {
  for (const { id, to } of locks) if (to !== undefined && !tokens.has(to)) yield `${id}: ${to} was never sent`
  for (const { id, token, end, verdict } of verdicts) {
    if (verdict === 'recorded' && !tokens.has(token)) yield `${end} of ${id}: ${token} was never sent`
  }
}

function* owners(changes: readonly Change[], { inserted, stated, answered }: Sent): Generator<string> {
  const inserts = Map.groupBy(
    changes.filter(({ before }) => !before),
    ({ id }) => id,
  )
  for (const id of inserted) {
    const { length } = inserts.get(id) ?? []
    if (length !== 1) yield `${id}: told as inserted, the oplog has it ${length} times`
  }
  for (const { id, state } of stated) {
    const set = changes.filter(
      (one) => one.id === id && one.after?.['state'] === state && one.before?.['state'] !== state,
    )
    if (set.length !== 1) yield `${id}: told that its state is ${state}, the oplog has that ${set.length} times`
  }
  for (const { id, question } of answered) {
    const answerIn = (document: Change['before']) => document?.['progress']?.answer?.questionId
    const { length } = changes.filter(
      (one) => one.id === id && answerIn(one.after) === question && answerIn(one.before) !== question,
    )
    if (length !== 1) yield `${id}: told that ${question} is answered, the oplog has that ${length} times`
  }
}

const outboxOf = (document: Change['before']): { seq?: number; open?: Call[] } => document?.['progress']?.outbox ?? {}

/** Nothing is told that isn't there, all that is there is, and each document's in its order; again perhaps, where an answer was lost. */
function* callbacks(changes: readonly Change[], { told }: Sent): Generator<string> {
  const stored = new Map<string, string>()
  for (const { id, before, after } of changes) {
    const { seq: last = 0 } = outboxOf(before)
    for (const { seq, to } of outboxOf(after).open ?? []) if (seq > last) stored.set(`${id} ${seq}`, to)
  }
  const newest = new Map<string, number>()
  const known = new Set<string>()
  for (const { id, seq, to } of told) {
    const key = `${id} ${seq}`
    known.add(key)
    if (stored.get(key) !== to) yield `${key}: told of ${to}, the oplog has ${stored.get(key) ?? 'nothing of it'}`
    const last = newest.get(id) ?? 0
    if (seq > last + 1) yield `${key}: told before ${last + 1}`
    newest.set(id, Math.max(last, seq))
  }
  for (const [key, to] of stored) if (!known.has(key)) yield `${key}: of ${to} in the oplog nobody was told`
}

/** Of the documents with one value no more are under a lease than there are slots. */
function* held(changes: readonly Change[], lockTimeoutMs: number, { field, each }: Slots): Generator<string> {
  const byValue = new Map<unknown, Map<string, number>>()
  for (const { id, before, after, wall } of changes) {
    const value: unknown = (after ?? before)?.[field]
    const until = byValue.get(value) ?? new Map<string, number>()
    byValue.set(value, until)
    if (after?.['lockedBy'] === undefined) until.delete(id)
    else until.set(id, after['lockedAt'].getTime() + lockTimeoutMs)
    const now = [...until.values()].filter((ms) => ms > wall.getTime()).length
    if (now > each) yield `${id}: one of ${now} that are held with ${field} ${String(value)}, which has ${each} slots`
  }
}
