import type { Document } from 'mongodb'
import { type Clock, sleep } from '../../time/index.js'
import { idKey } from '../documents/id-key.js'
import type { Lease } from '../lease/lease.js'
import type { Terms } from '../terms/terms.js'
import type { EndGroup } from './end-update.js'
import { traceOf } from './read-back.js'
import type { StepEnd, Verdict } from './step-end.js'

const FIRST_RETRY_MS = 50
/** Work has to go on soon after a database has come back. */
const LAST_RETRY_MS = 500
/** A write that fails for no fault of its document's is given up after so many tries, and so long, if its lease was renewed meanwhile. */
const MOST_TRIES = 5
const MOST_FAILING_MS = 10_000
/** Of those that stand alone, at once. */
const MOST_ALONE = 20

const RECORDED: Verdict = { kind: 'recorded' }

/** What a command has come to. */
export type Sent =
  | { readonly kind: 'allMatched' }
  | { readonly kind: 'fewer'; readonly missing: number }
  | { readonly kind: 'refused'; readonly error: Error }
  | { readonly kind: 'unknown'; readonly error: unknown }

/** The verdicts on the ends of one write. Each is told as soon as it is known. */
export class Verdicts {
  private readonly byEnd = new Map<StepEnd, Verdict>()
  private readonly complete = Promise.withResolvers<Map<StepEnd, Verdict>>()
  tell: ((end: StepEnd, verdict: Verdict) => void) | undefined

  constructor(private readonly ends: number) {}

  /** Resolves when there is one for each end; rejects when nobody waits any more. */
  get all(): Promise<Map<StepEnd, Verdict>> {
    return this.complete.promise
  }

  recorded(group: EndGroup): void {
    for (const member of group.members) this.decide(group, member, RECORDED)
  }

  /** Passes the lease to its next step where the verdict says so, and ends it else; one that was refused stays as it is. */
  decide({ nextToken }: EndGroup, end: StepEnd, verdict: Verdict): void {
    const { lease } = end
    if (verdict.kind === 'recorded' && nextToken !== null) {
      lease.passTo(nextToken, end.end.kind === 'again' ? lease.fence + 1 : lease.fence)
    } else if (verdict.kind !== 'rejected') lease.end()
    this.byEnd.set(end, verdict)
    this.tell?.(end, verdict)
    if (this.byEnd.size === this.ends) this.complete.resolve(this.byEnd)
  }

  failed(error: unknown): void {
    this.complete.reject(error)
  }
}

/** Ends whose last command together hasn't recorded them all. */
interface Batch {
  readonly groups: readonly EndGroup[]
  readonly verdicts: Verdicts
  readonly sent: Exclude<Sent, { kind: 'allMatched' }>
  /** Whether a write of these was sent with an unknown outcome, so that it may still arrive. */
  readonly inDoubt: boolean
  /** Commands in a row, of just these, whose outcome was unknown, and when the first of them was. */
  readonly tries: number
  readonly sinceMs: number
  /** Monotonic time from which on they are read back. */
  readonly dueMs: number
}

export interface EndRetriesOptions {
  readonly terms: () => Terms
  readonly send: (groups: readonly EndGroup[]) => Promise<Sent>
  readonly read: (ids: readonly unknown[]) => Promise<Map<string, Document>>
  readonly clock: Clock
  readonly onRetry: (error: unknown) => void
  readonly signal?: AbortSignal | undefined
}

/**
 * What a first command hasn't recorded: it is read back, and what isn't written is sent again, one batch after the other, until there is a
 * verdict for each end.
 *
 * - A batch that was refused, or failed twice, is halved: so a culprit soon stands alone, and its neighbours are recorded.
 * - While nothing can be read back the database is away: that counts for nothing, and lasts until it is back or the replica stops.
 * - A single write that goes on failing for a reason that isn't its document's is given up when its lease could be renewed meanwhile: the
 *   server takes writes, this very document's too, and not this one. Else nobody can do anything with the document, or another claims it,
 *   which is seen.
 *
 * Halves keep their group's next token, so that a first write that arrives late is still known.
 */
export class EndRetries {
  private open: Batch[] = []
  private isRunning = false
  private lastError: unknown
  /** Leases under whose token a write of unknown outcome was refused when it was sent again: it may still arrive beside what follows it. */
  private readonly doubted = new WeakSet<Lease>()
  private nudge: () => void = () => undefined

  constructor(private readonly options: EndRetriesOptions) {}

  add(groups: readonly EndGroup[], sent: Batch['sent'], verdicts: Verdicts): void {
    this.again({ groups, verdicts, inDoubt: false, tries: 0, sinceMs: this.now() }, sent)
    this.nudge()
    if (!this.isRunning) void this.run()
  }

  private async run(): Promise<void> {
    this.isRunning = true
    let silent = 0
    while (this.open.length > 0 && !this.isOver) {
      const due = this.takeDue()
      if (due.length > 0) silent = (await this.goThrough(due)) ? 0 : silent + 1
      if (this.open.length > 0) await this.pause(silent)
    }
    for (const { verdicts } of this.open.splice(0)) verdicts.failed(this.lastError)
    this.isRunning = false
  }

  /** One command reads back all of them: that shows too whether there is a database. */
  private async goThrough(due: readonly Batch[]): Promise<boolean> {
    const ids = due.flatMap(({ groups }) => groups.flatMap(({ members }) => members.map(({ lease }) => lease.id)))
    let found: Map<string, Document>
    try {
      found = await this.options.read(ids)
    } catch (error) {
      this.failed(error)
      this.open.push(...due)
      return false
    }
    for (const batch of due) {
      try {
        if (this.isOver) this.open.push(batch)
        else await this.goOn(batch, found)
      } catch (error) {
        batch.verdicts.failed(error)
      }
    }
    return true
  }

  private async goOn(batch: Batch, found: Map<string, Document>): Promise<void> {
    const { sent, verdicts } = batch
    const rest = this.decideByTrace(batch, found)
    if (rest.length === 0) return
    const [group, end] = [rest[0]!, rest[0]!.members[0]!]
    if (sizeOf(batch.groups) === 1) {
      if (sent.kind === 'refused') {
        if (batch.inDoubt) this.doubted.add(end.lease)
        return verdicts.decide(group, end, { kind: 'rejected', error: sent.error })
      }
      if (sent.kind === 'unknown' && this.isHopeless(batch, end)) {
        return verdicts.decide(group, end, { kind: 'givenUp', error: sent.error })
      }
    }
    const isSplit = sizeOf(rest) > 1 && (sent.kind === 'refused' || batch.tries > 1)
    for (const groups of isSplit ? halvesOf(rest) : [rest]) {
      const resent = await this.options.send(groups)
      if (resent.kind === 'allMatched') for (const one of groups) verdicts.recorded(one)
      else this.again({ ...batch, groups, ...(isSplit && { tries: 1 }) }, resent)
    }
  }

  /** Decides what the documents show; returns what has to be sent (again). */
  private decideByTrace(batch: Batch, found: Map<string, Document>): EndGroup[] {
    const { sent, verdicts } = batch
    const terms = this.options.terms()
    const notWritten: EndGroup[] = []
    const movedOn: [EndGroup, StepEnd][] = []
    for (const group of batch.groups) {
      const open: StepEnd[] = []
      for (const member of group.members) {
        const trace = traceOf(found.get(idKey(member.lease.id)), terms, group)
        if (trace === 'notWritten') open.push(member)
        else if (trace === 'movedOn' || this.doubted.has(member.lease)) movedOn.push([group, member])
        else verdicts.decide(group, member, RECORDED)
      }
      if (open.length > 0) notWritten.push({ ...group, members: open })
    }
    // Every reply so far was definite, and it missed just as many as have moved on: those were lost, not recorded.
    const isLost = !batch.inDoubt && sent.kind === 'fewer' && movedOn.length === sent.missing
    for (const [group, member] of movedOn) verdicts.decide(group, member, { kind: isLost ? 'lost' : 'movedOn' })
    return notWritten
  }

  private isHopeless({ tries, sinceMs }: Batch, { lease }: StepEnd): boolean {
    const failingMs = this.now() - sinceMs
    return tries >= MOST_TRIES && failingMs >= MOST_FAILING_MS && lease.ageMs() < failingMs
  }

  /** What was refused at once, all else after a pause: a majority that lags behind must not make it a hot loop. */
  private again(batch: Omit<Batch, 'sent' | 'dueMs'> & { sent?: Sent }, sent: Batch['sent']): void {
    const now = this.now()
    const isUnknown = sent.kind === 'unknown'
    if (isUnknown) this.failed(sent.error)
    else this.lastError = sent.kind === 'refused' ? sent.error : this.lastError
    const isSilent = isUnknown || (sent.kind === 'fewer' && batch.sent?.kind === 'fewer')
    this.open.push({
      ...batch,
      sent,
      inDoubt: batch.inDoubt || isUnknown,
      tries: isUnknown ? batch.tries + 1 : 0,
      sinceMs: batch.tries > 0 ? batch.sinceMs : now,
      dueMs: isSilent ? now + pauseMs(batch.tries) : now,
    })
  }

  private failed(error: unknown): void {
    this.lastError = error
    this.options.onRetry(error)
  }

  /** All groups that are due, which may have innocent members, and some of those that stand alone: so many of them hold up nobody. */
  private takeDue(): Batch[] {
    const now = this.now()
    const due = this.open.filter(({ dueMs }) => dueMs <= now)
    const isAlone = ({ groups }: Batch) => sizeOf(groups) === 1
    const alone = due.filter(isAlone).slice(0, MOST_ALONE)
    const taken = new Set([...due.filter((batch) => !isAlone(batch)), ...alone])
    this.open = this.open.filter((batch) => !taken.has(batch))
    return [...taken]
  }

  /** Until something is due, or has come in; the longer the more often the database was silent. */
  private async pause(silent: number): Promise<void> {
    const { signal } = this.options
    const waitMs = Math.min(...this.open.map(({ dueMs }) => dueMs)) - this.now()
    const ms = silent > 0 ? Math.max(waitMs, pauseMs(silent - 1)) : waitMs
    if (ms <= 0) return
    const nudged = new Promise<void>((resolve) => {
      if (silent === 0) this.nudge = resolve
    })
    await Promise.race([sleep(ms, signal ? { signal } : {}), nudged])
  }

  /** Nobody waits for verdicts any more: nothing is sent, however much is due. */
  private get isOver(): boolean {
    return this.options.signal?.aborted ?? false
  }

  private now(): number {
    return this.options.clock.monotonicMs()
  }
}

function halvesOf(groups: readonly EndGroup[]): EndGroup[][] {
  if (groups.length > 1) {
    const middle = Math.ceil(groups.length / 2)
    return [groups.slice(0, middle), groups.slice(middle)]
  }
  const group = groups[0]!
  const middle = Math.ceil(group.members.length / 2)
  return [group.members.slice(0, middle), group.members.slice(middle)].map((members) => [{ ...group, members }])
}

const sizeOf = (groups: readonly EndGroup[]): number => groups.reduce((sum, { members }) => sum + members.length, 0)

const pauseMs = (before: number): number => Math.min(FIRST_RETRY_MS * 2 ** before, LAST_RETRY_MS)
