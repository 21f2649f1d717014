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
 * grow; nobody was left without a verdict.
 * @param lockTimeoutMs the one that all leases of the trace had
 */
export function* contradictionsOfOplog(
  trace: Trace,
  changes: readonly Change[],
  sent: Sent,
  lockTimeoutMs: number,
): Generator<string> {
  const locks = changes.flatMap((change) => lockChange(change) ?? [])
  yield* verdicts(trace, locks)
  yield* leases(trace, locks)
  yield* holders(locks, lockTimeoutMs)
  yield* lateOutcomes(changes)
  yield* fences(changes)
  yield* commands(trace, locks, sent)
  yield* owners(changes, sent)
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

function* owners(changes: readonly Change[], { inserted, stated }: Sent): Generator<string> {
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
}
