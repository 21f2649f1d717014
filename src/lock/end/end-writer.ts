import type { Collection, Document } from 'mongodb'
import { type Clock, sleep } from '../../time/index.js'
import { isDefiniteRefusal, mostPerUpdate, type NamedUpdate, retryPauseMs, updateNamed } from '../documents/write.js'
import type { Lease } from '../lease/lease.js'
import type { StepEnd, Verdict } from '../record/step-end.js'
import type { Terms } from '../terms/terms.js'
import { applyingPendingInsert, type EndGroup, endFilter, endUpdate, groupEnds, putsToSleep } from './end-update.js'
import { hadPendingInsert, readBack, traceOf } from './read-back.js'

/**
 * A write that fails through no fault of its document is given up after this many tries and this long, if its lease was renewed in the meantime.
 */
const MOST_TRIES = 5
const MOST_FAILING_MS = 10_000
/** The number of single-write batches that are taken at the same time. */
const MOST_ALONE = 20

const RECORDED: Verdict = { kind: 'recorded' }
const RECORDED_WITH_INSERT: Verdict = { kind: 'recorded', appliesPendingInsert: true }

const recordedOf = ({ appliesPendingInsert }: EndGroup): Verdict =>
  appliesPendingInsert ? RECORDED_WITH_INSERT : RECORDED

/** The result of a command. */
type Sent =
  | { readonly kind: 'allMatched' }
  | { readonly kind: 'fewer'; readonly missing: number }
  | { readonly kind: 'refused'; readonly error: Error }
  | { readonly kind: 'unknown'; readonly error: unknown }

/** The verdicts on the ends of one write. Each is reported as soon as it is known. */
class Verdicts {
  private readonly byEnd = new Map<StepEnd, Verdict>()
  private readonly complete = Promise.withResolvers<Map<StepEnd, Verdict>>()
  /** Resolves when there is one for each end; rejects when no caller waits for them any more. */
  readonly all = this.complete.promise
  tell: ((end: StepEnd, verdict: Verdict) => void) | undefined

  constructor(private readonly ends: number) {}

  recorded(group: EndGroup): void {
    for (const member of group.members) this.decide(group, member, recordedOf(group))
  }

  /** Passes the lease to its next step if the verdict allows it, else ends it; a rejected end leaves its lease as it is. */
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

/** Ends that were last sent together, not all of which were recorded. */
interface Batch {
  readonly groups: readonly EndGroup[]
  readonly verdicts: Verdicts
  readonly sent: Exclude<Sent, { kind: 'allMatched' }>
  /** True if an earlier write of these had an unknown outcome, so that it may still arrive. */
  readonly inDoubt: boolean
  /** The number of commands in a row, for just these ends, with an unknown outcome, and the time of the first. */
  readonly tries: number
  readonly sinceMs: number
  /** Monotonic time from which they are read back. */
  readonly dueMs: number
}

export interface EndWriterOptions {
  collection: Collection
  terms: () => Terms
  clock: Clock
  /** Makes sure that the terms are still valid. */
  keepTermsFresh?: (() => Promise<void>) | undefined
  /** Called once per failed command, so that an outage can be logged with a bound. */
  onRetry?: ((error: unknown) => void) | undefined
  /** Aborts when no caller waits for verdicts any more; the last error is then thrown. */
  signal?: AbortSignal | undefined
}

/** Called while a write goes on. */
export interface EndProgress {
  /** The first command didn't record all: the rest may take long, and other writes needn't wait for it. */
  readonly inDoubt?: (() => void) | undefined
  /** An end that was in doubt has its verdict. */
  readonly decided?: ((end: StepEnd, verdict: Verdict) => void) | undefined
}

/**
 * Records how steps ended, like ends together.
 *
 * Invariants: each write is conditional on `{ _id, lockedBy: token }` and changes or removes the token; after an error whose outcome is unknown the
 * documents are read back before anything is sent again; a verdict is never guessed. The caller ensures that a document has one write at a time.
 *
 * Ends that the first command didn't record are read back, and those not written are sent again, one batch after the other, until each has a verdict.
 *
 * - A batch that was refused, or failed twice, is halved, so that a culprit is soon alone and its neighbors are recorded. Halves keep their group's
 *   next token, so that a first write that arrives late is still recognized.
 * - While nothing can be read back, the database is away: that isn't counted as a try, and goes on until it is back or the replica stops.
 * - A single write that keeps failing through no fault of its document is given up if its lease was renewed in the meantime: the server takes
 *   writes, even of this very document, but not this one. Without a renewal either no replica can write the document, or another replica claims
 *   it, and the next read shows that.
 */
export class EndWriter {
  private open: Batch[] = []
  private isRunning = false
  private lastError: unknown
  /** Leases whose write had an unknown outcome and was refused when sent again: it may still arrive, together with whatever follows it. */
  private readonly doubted = new WeakSet<Lease>()
  private nudge: () => void = () => undefined

  constructor(private readonly options: EndWriterOptions) {}

  /** Records ends and returns a verdict for each; their leases are passed to their next step, or ended, accordingly. */
  async write(ends: readonly StepEnd[], progress: EndProgress = {}): Promise<Map<StepEnd, Verdict>> {
    if (ends.length === 0) return new Map()
    const groups = groupEnds(ends, mostPerUpdate(this.options.collection))
    const verdicts = new Verdicts(ends.length)
    const sent = await this.send(groups)
    if (sent.kind === 'allMatched') {
      for (const group of groups) verdicts.recorded(group)
    } else {
      progress.inDoubt?.()
      verdicts.tell = progress.decided
      this.again({ groups, verdicts, inDoubt: false, tries: 0, sinceMs: this.now() }, sent)
      this.nudge()
      if (!this.isRunning) void this.retry()
    }
    return verdicts.all
  }

  private async send(groups: readonly EndGroup[]): Promise<Sent> {
    // If the terms can't be read, the server judges them anyway.
    if (groups.some(putsToSleep)) await this.options.keepTermsFresh?.().catch(() => undefined)
    const total = sizeOf(groups)
    try {
      const matched = await this.update(groups)
      return matched === total ? { kind: 'allMatched' } : { kind: 'fewer', missing: total - matched }
    } catch (error) {
      return isDefiniteRefusal(error) ? { kind: 'refused', error } : { kind: 'unknown', error }
    }
  }

  private async update(groups: readonly EndGroup[]): Promise<number> {
    const terms = this.options.terms()
    const updates = groups.map((group): NamedUpdate => {
      const ids = group.members.map((member) => member.lease.id)
      const filter = { _id: { $in: ids as never[] }, ...endFilter(terms, group) }
      return { ids, filter, update: endUpdate(terms, group) }
    })
    return (await updateNamed(this.options.collection, updates)).matchedCount
  }

  /** Goes on until nothing is open. */
  private async retry(): Promise<void> {
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

  /** Reads back all of them with one command, which also shows if the database answers. */
  private async goThrough(due: readonly Batch[]): Promise<boolean> {
    const ids = due.flatMap(({ groups }) => groups.flatMap(({ members }) => members.map(({ lease }) => lease.id)))
    let found: Map<string, Document>
    try {
      found = await readBack(this.options.collection, this.options.terms(), ids)
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
        return verdicts.decide(group, end, {
          kind: 'rejected',
          error: sent.error,
          appliesPendingInsert: group.appliesPendingInsert,
        })
      }
      if (sent.kind === 'unknown' && this.isHopeless(batch, end)) {
        return verdicts.decide(group, end, { kind: 'givenUp', error: sent.error })
      }
    }
    const isSplit = sizeOf(rest) > 1 && (sent.kind === 'refused' || batch.tries > 1)
    for (const groups of isSplit ? halvesOf(rest) : [rest]) {
      const resent = await this.send(groups)
      if (resent.kind === 'allMatched') for (const one of groups) verdicts.recorded(one)
      else this.again({ ...batch, groups, ...(isSplit && { tries: 1 }) }, resent)
    }
  }

  /** Decides the ends that the documents show; returns those to send (again). */
  private decideByTrace(batch: Batch, found: Map<string, Document>): EndGroup[] {
    const { sent, verdicts } = batch
    const terms = this.options.terms()
    const notWritten: EndGroup[] = []
    const movedOn: [EndGroup, StepEnd][] = []
    let missed = 0
    for (const group of batch.groups) {
      const open: StepEnd[] = []
      const withPendingInsert: StepEnd[] = []
      for (const member of group.members) {
        const document = found.get(member.lease.key)
        const trace = traceOf(document, terms, group)
        if (trace === 'notWritten')
          (hadPendingInsert(document) && !group.appliesPendingInsert ? withPendingInsert : open).push(member)
        else if (trace === 'movedOn' || this.doubted.has(member.lease)) movedOn.push([group, member])
        else verdicts.decide(group, member, recordedOf(group))
      }
      if (open.length > 0) notWritten.push({ ...group, members: open })
      if (withPendingInsert.length > 0) notWritten.push(applyingPendingInsert({ ...group, members: withPendingInsert }))
      missed += withPendingInsert.length
    }
    // Every reply so far was definite, and the last one missed exactly the number of documents that have moved on (or have a
    // queued insert): those were lost, not recorded.
    const isLost = !batch.inDoubt && sent.kind === 'fewer' && movedOn.length + missed === sent.missing
    for (const [group, member] of movedOn) verdicts.decide(group, member, { kind: isLost ? 'lost' : 'movedOn' })
    return notWritten
  }

  private isHopeless({ tries, sinceMs }: Batch, { lease }: StepEnd): boolean {
    const failingMs = this.now() - sinceMs
    return tries >= MOST_TRIES && failingMs >= MOST_FAILING_MS && lease.ageMs() < failingMs
  }

  /** Queues a batch again. One that was refused is due immediately, the rest after a pause: a lagging majority must not make this a hot loop. */
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
      dueMs: isSilent ? now + retryPauseMs(batch.tries) : now,
    })
  }

  private failed(error: unknown): void {
    this.lastError = error
    this.options.onRetry?.(error)
  }

  /** Takes all due batches of several ends, which may have innocent members, and only some of the single ones: these never hold up the rest. */
  private takeDue(): Batch[] {
    const now = this.now()
    const due = this.open.filter(({ dueMs }) => dueMs <= now)
    const { one = [], several = [] } = Object.groupBy(due, ({ groups }) => (sizeOf(groups) === 1 ? 'one' : 'several'))
    const taken = new Set([...several, ...one.slice(0, MOST_ALONE)])
    this.open = this.open.filter((batch) => !taken.has(batch))
    return [...taken]
  }

  /** Waits until a batch is due or comes in; longer after each time in a row that the database didn't answer. */
  private async pause(silent: number): Promise<void> {
    const { signal } = this.options
    const waitMs = Math.min(...this.open.map(({ dueMs }) => dueMs)) - this.now()
    const ms = silent > 0 ? Math.max(waitMs, retryPauseMs(silent - 1)) : waitMs
    if (ms <= 0) return
    const nudged = new Promise<void>((resolve) => {
      if (silent === 0) this.nudge = resolve
    })
    await Promise.race([sleep(ms, signal ? { signal } : {}), nudged])
  }

  /** True once no caller waits for verdicts any more: nothing is sent then, however much is due. */
  private get isOver(): boolean {
    return this.options.signal?.aborted ?? false
  }

  private now(): number {
    return this.options.clock.monotonicMs()
  }
}

function halvesOf(groups: readonly EndGroup[]): EndGroup[][] {
  if (groups.length > 1) return halved(groups)
  const group = groups[0]!
  return halved(group.members).map((members) => [{ ...group, members }])
}

const halved = <T>(all: readonly T[]): T[][] => {
  const middle = Math.ceil(all.length / 2)
  return [all.slice(0, middle), all.slice(middle)]
}

const sizeOf = (groups: readonly EndGroup[]): number => groups.reduce((sum, { members }) => sum + members.length, 0)
