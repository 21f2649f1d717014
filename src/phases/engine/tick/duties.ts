import type { Document } from 'mongodb'
import { isServerError } from '../../../database/index.js'
import {
  COPY_EVERY_MS,
  copyFlows,
  type DutyEnd,
  endDuties,
  forgetDuties,
  forgetOldKeys,
  LIFECYCLES_COLLECTION,
  type ServerClock,
  type Shift,
  takeDuties,
} from '../../../lock/index.js'
import { formatMs } from '../../../time/index.js'
import { CensusTooSlow } from '../../census/take.js'
import { recordedError } from '../../errors/recorded-error.js'
import { forgetEvents } from '../../events/events.js'
import type { Logger } from '../../reporting/logger.js'
import type { RunningLifecycle } from '../lifecycle/running-lifecycle.js'
import type { FlowCounter } from '../registry/flow-counter.js'
import { CENSUS, CensusDuties, type CensusDutyOptions } from './census-duty.js'

/** The duty that finds lifecycles without replicas. */
export const UNHANDLED = 'lifecycles without replicas'
/** The time after which a duty that no replica has begun is removed, such as a lifecycle's sweep with the lifecycle. */
const DUTY_KEPT_MS = 3_600_000
const LEFT_BEHIND_EVERY_MS = 600_000
const OLD_EVENTS_EVERY_MS = 600_000
/** The time until the first duties: a replica has then had time to claim the documents that it found. */
const FIRST_AFTER_MS = 30_000
/** The time without a replica's stamp after which a lifecycle has no replica. */
const UNHANDLED_AFTER_MS = 300_000
/** A duty that fails again and again with the same error costs a line in the log each time that this is over. */
const FAILURE_EVERY_MS = 290_000
/** The time of a shift. Duties of the shift that haven't begun by its end are given back, and taken anew if they are still due. */
const SHIFT_MS = 10_000
const UNAUTHORIZED = 13

export interface DutiesOptions extends CensusDutyOptions {
  readonly logger: Logger
  readonly serverClock: Pick<ServerClock, 'hold' | 'validUntil'>
  readonly running: () => readonly RunningLifecycle[]
  readonly flows: Pick<FlowCounter, 'isRecent'>
}

interface DutyToDo {
  readonly name: string
  readonly everyMs: number
  /** The interval as the server judges it, where the duty's document says more than this process knows. Default: `everyMs`. */
  readonly everyOnServer?: number | Document
  /** The time that it may take, where its interval may be shorter. */
  readonly mostMs?: number
  readonly run: (shift: Shift) => Promise<object>
  /** True if there is anything to do. Default: true. */
  readonly isNeeded?: () => boolean
}

/**
 * The duties that one replica does now and then for all: at most one does a duty within its interval, by the document of the duty in
 * `phaselock.duties`. No other work waits for a duty or depends on it: one that fails is done again after its interval, and its document says why it
 * failed.
 */
export class Duties {
  /** By duty, the monotonic time when it was asked for last; before that, when it was first due to be. */
  private readonly askedAtMs = new Map<string, number>()
  private readonly asked = new Set<string>()
  private readonly censuses: CensusDuties
  private readonly failures = new Map<string, { readonly why: string; readonly atMs: number }>()
  private readonly ofAll: readonly DutyToDo[]
  private current: Promise<void> | undefined
  private shifts = 0
  private stopped = false

  constructor(private readonly options: DutiesOptions) {
    this.censuses = new CensusDuties(options)
    this.ofAll = [
      {
        name: UNHANDLED,
        everyMs: options.sweepEveryMs,
        run: () => this.unhandled(),
        isNeeded: () => options.sweepEveryMs > 0,
      },
      { name: 'unused limits of keys', everyMs: LEFT_BEHIND_EVERY_MS, run: () => this.forgetLeftBehind() },
      {
        name: 'flow',
        everyMs: COPY_EVERY_MS,
        run: () => copyFlows(options.db, options.serverNow()),
        isNeeded: () => options.flows.isRecent,
      },
      {
        name: 'old events',
        everyMs: OLD_EVENTS_EVERY_MS,
        run: () => this.forgetEvents(),
        isNeeded: () => options.running().some(({ events }) => events),
      },
    ]
  }

  /** Does the duties that are due, one after the other. Returns immediately. */
  ifDue(): void {
    if (this.current) return
    const now = this.options.clock.monotonicMs()
    const due = this.duties().filter(({ name, everyMs }) => {
      const sinceMs = now - (this.askedAtMs.get(name) ?? now)
      if (!this.askedAtMs.has(name)) this.askedAtMs.set(name, now)
      return sinceMs >= (this.asked.has(name) ? everyMs : Math.min(everyMs, FIRST_AFTER_MS))
    })
    if (due.length === 0) return
    for (const { name } of due) {
      this.askedAtMs.set(name, now)
      this.asked.add(name)
    }
    this.current = this.runAll(due).finally(() => {
      this.current = undefined
    })
  }

  private duties(): readonly DutyToDo[] {
    return [...this.censuses.of(this.options.running()), ...this.ofAll.filter(({ isNeeded }) => isNeeded?.() ?? true)]
  }

  /**
   * Does those that no other replica has done within their intervals. Never rejects: an error that isn't the server's answer is an outage, which the
   * tick reports. A missing right was reported at the start.
   */
  async runAll(duties = this.duties()): Promise<void> {
    try {
      for (let left = duties; left.length > 0 && !this.stopped; ) left = await this.runShift(left)
    } catch (error) {
      this.failed('taking or ending duties', duties[0]?.everyMs ?? 0, error)
    }
  }

  /**
   * Takes some duties at the same time, and does them one after the other. If they take long together, or the process stood still, the last of them
   * are open to other replicas again. Duties that another replica has taken in the meantime are not done.
   * @returns those that it has given back
   */
  private async runShift(duties: readonly DutyToDo[]): Promise<readonly DutyToDo[]> {
    const { db, identity, clock } = this.options
    this.shifts += 1
    const shift = { by: identity, shift: this.shifts }
    const takenAtMs = clock.monotonicMs()
    const asked = duties.map(({ name, everyMs, everyOnServer = everyMs, mostMs }) => ({
      ...{ name, everyMs: everyOnServer },
      // It may begin at the end of the shift.
      ...(mostMs !== undefined && { mostMs: SHIFT_MS + mostMs }),
    }))
    const names = new Set(await takeDuties(db, asked, shift, (duty) => this.censuses.saw(duty)))
    const left = duties.filter(({ name }) => names.has(name))
    const ended: DutyEnd[] = []
    const mayBegin = ({ everyMs }: DutyToDo) =>
      !this.stopped && clock.monotonicMs() - takenAtMs < (ended.length === 0 ? everyMs : SHIFT_MS)
    while (left.length > 0 && mayBegin(left[0]!)) ended.push(await this.do(left.shift()!, shift))
    const notBegun = left.map(({ name }) => name)
    await endDuties(db, shift, await this.withCensuses(ended, shift), notBegun)
    return left
  }

  /** Stores the censuses of a shift. Where that fails, their duties have failed. */
  private async withCensuses(ended: readonly DutyEnd[], shift: Shift): Promise<readonly DutyEnd[]> {
    try {
      await this.censuses.store(shift)
      return ended
    } catch (error) {
      this.failed('storing censuses', this.options.sweepEveryMs, error)
      const why = recordedError(error).message
      return ended.map((one) =>
        'found' in one && one.name.startsWith(CENSUS) ? { name: one.name, tookMs: one.tookMs, error: why } : one,
      )
    }
  }

  async stop(): Promise<void> {
    this.stopped = true
    await this.current
  }

  private async do({ name, everyMs, run }: DutyToDo, shift: Shift): Promise<DutyEnd> {
    const { clock } = this.options
    const startedMs = clock.monotonicMs()
    const tookMs = () => Math.round(clock.monotonicMs() - startedMs)
    try {
      return { name, found: (await run(shift)) as Document, tookMs: tookMs() }
    } catch (error) {
      this.failed(`the duty '${name}'`, everyMs, error)
      return { name, error: recordedError(error).message, tookMs: tookMs() }
    }
  }

  private failed(what: string, everyMs: number, error: unknown): void {
    const isSaid = isServerError(error) || error instanceof CensusTooSlow
    if (!isSaid || isServerError(error, UNAUTHORIZED)) return
    const why = recordedError(error).message
    const [before, atMs] = [this.failures.get(what), this.options.clock.monotonicMs()]
    if (before?.why === why && atMs - before.atMs < FAILURE_EVERY_MS) return
    this.failures.set(what, { why, atMs })
    this.options.logger.warn(`${what} failed, next in ${formatMs(everyMs)}: ${why}`)
  }

  /**
   * Removes duties that are no longer done, and limits of keys. A forward step of the server's clock that isn't confirmed, or that no look has seen
   * yet, removes no limit, because its slots may be in use.
   */
  private async forgetLeftBehind(): Promise<{ removed: number }> {
    const { db, running, serverClock } = this.options
    await forgetDuties(db, DUTY_KEPT_MS)
    const hasKeys = running().some(({ model }) => model.settings.limitBy !== undefined)
    const validUntil = serverClock.validUntil()
    if (!hasKeys || serverClock.hold() || !validUntil) return { removed: 0 }
    return { removed: await forgetOldKeys(db, validUntil) }
  }

  /** Removes events of lifecycles with more than they keep; the server removes expired ones. */
  private async forgetEvents(): Promise<{ removed: number }> {
    const { db, running } = this.options
    let removed = 0
    for (const { model } of running())
      if (model.settings.events) removed += await forgetEvents(db, model.name, model.settings.events.most)
    return { removed }
  }

  private async unhandled(): Promise<{ unhandled: string[] }> {
    const { db, running } = this.options
    const isOld = { $lt: ['$handledAt', { $subtract: ['$$NOW', UNHANDLED_AFTER_MS] }] }
    const entries = db.collection<{ _id: string }>(LIFECYCLES_COLLECTION)
    const old = await entries.find({ $expr: isOld }, { projection: { _id: 1 }, limit: 100 }).toArray()
    const own = new Set(running().map(({ model }) => model.name))
    return { unhandled: old.map(({ _id }) => String(_id)).filter((name) => !own.has(name)) }
  }
}
