import type { AnyBulkWriteOperation, Collection, Document } from 'mongodb'
import { sleep } from '../time/index.js'
import { ID_INDEX } from './constants.js'
import { groupEnds } from './end-groups.js'
import { type EndGroup, endUpdate, putsToSleep } from './end-update.js'
import { idKey } from './id-key.js'
import { leaseUnmoved } from './legacy-writers.js'
import { readBack, traceOf } from './read-back.js'
import type { StepEnd, Verdict } from './step-end.js'
import type { Terms } from './terms.js'
import { isDefiniteRefusal } from './write-error.js'

const RECORDED: Verdict = { kind: 'recorded' }
const FIRST_RETRY_MS = 50
/** Work has to go on soon after a database has come back. */
const LAST_RETRY_MS = 500

export interface EndWriterOptions {
  collection: Collection
  terms: () => Terms
  /** Sees to it that the terms may be gone by. */
  keepTermsFresh?: (() => Promise<void>) | undefined
  /** Told once for each failed command, so that an outage can be logged with a bound. */
  onRetry?: ((error: unknown) => void) | undefined
  /** Aborts when nobody waits for verdicts any more: then the last error is thrown. */
  signal?: AbortSignal | undefined
}

/**
 * Records how steps ended, alike ones together.
 *
 * Invariants: each write is conditional on `{ _id, lockedBy: token }` and changes or removes the token; after an error
 * whose outcome is unknown the documents are read back before anything is sent again; a verdict is never guessed.
 */
export class EndWriter {
  constructor(private readonly options: EndWriterOptions) {}

  /** A verdict for each end; ends' leases are passed to their next step, or ended, accordingly. */
  async write(ends: readonly StepEnd[]): Promise<Map<StepEnd, Verdict>> {
    const verdicts = new Map<StepEnd, Verdict>()
    await this.settle(groupEnds(ends), verdicts)
    return verdicts
  }

  /** @param doubt whether a write of these groups was sent before with an unknown outcome, so that it may still arrive */
  private async settle(groups: EndGroup[], verdicts: Map<StepEnd, Verdict>, doubt = false): Promise<void> {
    let open = groups
    let outcomeUnknown = doubt
    for (let retry = 0; open.length > 0; retry += 1) {
      const sent = await this.send(open)
      if (sent.kind === 'allMatched') {
        for (const group of open) this.conclude(group, group.members, RECORDED, verdicts)
        return
      }
      if (sent.kind === 'unknown') {
        outcomeUnknown = true
        this.options.onRetry?.(sent.error)
        await this.pause(retry, sent.error)
      }
      const rest = await this.readBackUntilAnswered(open, retry)
      const notWritten = this.concludeByTrace(open, rest, sent, outcomeUnknown, verdicts)
      if (sent.kind === 'refused') return this.halve(notWritten, sent.error, verdicts, outcomeUnknown)
      open = notWritten
    }
  }

  private async send(groups: readonly EndGroup[]): Promise<Sent> {
    // Where they can't be read the server judges them all the same.
    if (groups.some(putsToSleep)) await this.options.keepTermsFresh?.().catch(() => undefined)
    const terms = this.options.terms()
    const total = groups.reduce((sum, group) => sum + group.members.length, 0)
    try {
      const matched = await this.update(terms, groups)
      return matched === total ? { kind: 'allMatched' } : { kind: 'fewer', missing: total - matched }
    } catch (error) {
      return isDefiniteRefusal(error) ? { kind: 'refused', error } : { kind: 'unknown', error }
    }
  }

  private async update(terms: Terms, groups: readonly EndGroup[]): Promise<number> {
    const operations = groups.map((group) => ({
      filter: {
        _id: { $in: group.members.map((member) => member.lease.id) as never[] },
        ...terms.protocol.heldBy(group.token),
        ...leaseUnmoved(terms),
      },
      update: endUpdate(terms, group),
      hint: ID_INDEX,
    }))
    const only = operations.length === 1 ? operations[0]! : undefined
    if (only) {
      const result = await this.options.collection.updateMany(only.filter, only.update, { hint: only.hint })
      return result.matchedCount
    }
    const bulk: AnyBulkWriteOperation<Document>[] = operations.map((updateMany) => ({ updateMany }))
    const result = await this.options.collection.bulkWrite(bulk, { ordered: false })
    return result.matchedCount
  }

  private async readBackUntilAnswered(groups: readonly EndGroup[], retry: number): Promise<Map<string, Document>> {
    const ids = groups.flatMap((group) => group.members.map((member) => member.lease.id))
    for (let attempt = retry; ; attempt += 1) {
      try {
        return await readBack(this.options.collection, this.options.terms(), ids)
      } catch (error) {
        this.options.onRetry?.(error)
        await this.pause(attempt, error)
      }
    }
  }

  /** Concludes what the documents show; returns the groups of those whose write has to be sent (again). */
  private concludeByTrace(
    groups: readonly EndGroup[],
    documents: Map<string, Document>,
    sent: Exclude<Sent, { kind: 'allMatched' }>,
    outcomeUnknown: boolean,
    verdicts: Map<StepEnd, Verdict>,
  ): EndGroup[] {
    const notWritten: EndGroup[] = []
    const movedOn: [EndGroup, StepEnd][] = []
    for (const group of groups) {
      const open: StepEnd[] = []
      for (const member of group.members) {
        const trace = traceOf(documents.get(idKey(member.lease.id)), this.options.terms(), group)
        if (trace === 'written') this.conclude(group, [member], RECORDED, verdicts)
        else if (trace === 'notWritten') open.push(member)
        else movedOn.push([group, member])
      }
      if (open.length > 0) notWritten.push({ ...group, members: open })
    }
    // Every reply so far was definite, and it missed just as many as have moved on: those were lost, not recorded.
    const isLost = !outcomeUnknown && sent.kind === 'fewer' && movedOn.length === sent.missing
    for (const [group, member] of movedOn)
      this.conclude(group, [member], { kind: isLost ? 'lost' : 'movedOn' }, verdicts)
    return notWritten
  }

  /**
   * The culprit of a refused command is found by halving; the others are recorded. The halves keep the group's next token,
   * by which a first write that arrives late is known.
   */
  private async halve(
    groups: readonly EndGroup[],
    error: Error,
    verdicts: Map<StepEnd, Verdict>,
    doubt: boolean,
  ): Promise<void> {
    for (const group of groups) {
      if (groups.length > 1) {
        await this.settle([group], verdicts, doubt)
      } else if (group.members.length > 1) {
        const middle = Math.ceil(group.members.length / 2)
        await this.settle([{ ...group, members: group.members.slice(0, middle) }], verdicts, doubt)
        await this.settle([{ ...group, members: group.members.slice(middle) }], verdicts, doubt)
      } else {
        verdicts.set(group.members[0]!, { kind: 'rejected', error })
      }
    }
  }

  private conclude(
    group: EndGroup,
    members: readonly StepEnd[],
    verdict: Verdict,
    verdicts: Map<StepEnd, Verdict>,
  ): void {
    for (const member of members) {
      verdicts.set(member, verdict)
      const { lease, end } = member
      if (verdict.kind !== 'recorded' || group.nextToken === null) lease.end()
      else lease.passTo(group.nextToken, end.kind === 'again' ? lease.fence + 1 : lease.fence)
    }
  }

  private async pause(retry: number, error: unknown): Promise<void> {
    const { signal } = this.options
    await sleep(Math.min(FIRST_RETRY_MS * 2 ** retry, LAST_RETRY_MS), signal ? { signal } : {})
    if (signal?.aborted) throw error
  }
}

type Sent =
  | { kind: 'allMatched' }
  | { kind: 'fewer'; missing: number }
  | { kind: 'refused'; error: Error }
  | { kind: 'unknown'; error: unknown }
