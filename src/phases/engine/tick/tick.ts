import type { LookRequest, LookResult, Looks, Terms } from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import type { LifecycleModel } from '../../model/model.js'
import type { RunningLifecycle } from '../lifecycle/running-lifecycle.js'
import { FOREIGN_PHASES, REPAIR, type TickCounts } from '../lifecycle/tick-duties.js'
import type { LifecycleRegistry } from '../registry/lifecycle-registry.js'
import type { LiveReplicas } from '../registry/live-replicas.js'
import type { ClockWatch } from './clock-watch.js'

/** The interval after which the look also asks about documents that no look would find otherwise; they have no command of their own. */
const DUTIES_EVERY_MS = 60_000

/** The work of a tick: one look over all lifecycles, and for each the work that the look calls for. */
export class Tick {
  private dutiesAtMs = Number.NEGATIVE_INFINITY

  constructor(
    private readonly lifecycles: readonly RunningLifecycle[],
    private readonly looks: Looks,
    private readonly registry: LifecycleRegistry,
    private readonly liveReplicas: LiveReplicas,
    private readonly clockWatch: ClockWatch,
    private readonly clock: Clock,
  ) {}

  /** Runs a tick. When it returns, rules, renames and removals are done; due documents have been offered to the runners. */
  async run(): Promise<TickCounts> {
    for (const { lines } of this.lifecycles) lines.flush()
    // First, so that the look finds documents that have been mended.
    await Promise.all(this.lifecycles.map(({ tickDuties }) => tickDuties.repair(false)))
    const { found, foreign } = await this.look()
    this.liveReplicas.adopt(found)
    const counts: TickCounts = { ruled: 0, removed: 0, due: 0 }
    // In parallel, so that one failure holds up nothing else; the replicas that share, and a hold, are known from here on.
    const works = await Promise.allSettled([
      this.clockWatch.serve(found),
      this.liveReplicas.say(),
      this.registry.stamp(found.unstamped),
      ...this.lifecycles.map((parts) => this.serve(parts, found, counts)),
    ])
    for (const work of works) if (work.status === 'rejected') throw work.reason
    for (const { tickDuties } of foreign) await tickDuties.warnOfUnknownPhases()
    return counts
  }

  /** The requests of a look. */
  requests({ withDuties = false } = {}): LookRequest[] {
    return this.lifecycles.map(({ model, terms, refusing, tickDuties, deliverer }) => ({
      ...lookRequestOf(model, terms()),
      ...(deliverer && { outbox: deliverer.match() }),
      skipped: refusing.ids(),
      ...(withDuties && { dutyQueries: tickDuties.queries() }),
    }))
  }

  /** Looks; if the duties find something to mend, looks again after that is done. */
  private async look(): Promise<{ found: LookResult; foreign: RunningLifecycle[] }> {
    const withDuties = this.clock.monotonicMs() - this.dutiesAtMs >= DUTIES_EVERY_MS
    const found = await this.freshLook({ withDuties })
    if (withDuties) this.dutiesAtMs = this.clock.monotonicMs()
    const thatFind = (duty: string) =>
      this.lifecycles.filter(({ model }) => found.duties.get(model.name)?.includes(duty))
    const foreign = thatFind(FOREIGN_PHASES)
    const broken = thatFind(REPAIR)
    if (broken.length === 0) return { found, foreign }
    await Promise.all(broken.map(({ tickDuties }) => tickDuties.repair(true)))
    return { found: await this.freshLook(), foreign }
  }

  /**
   * Looks, and repeats the look if it was outdated. A look by a lockTimeout that was read too long ago matches nothing, even if documents are due.
   * One without a document that has just been resumed doesn't find it. It is repeated with what it has brought; otherwise `runOnce()` could end with
   * work left.
   */
  private async freshLook(what: { withDuties?: boolean } = {}): Promise<LookResult> {
    this.leavePausedAlone()
    const asked = this.requests(what)
    const found = await this.looks.look(asked, { maxTimeMS: 10_000 })
    const isOutdated = asked.some(({ terms: { validUntil } }) => validUntil && found.now && validUntil < found.now)
    if (!this.registry.adopt(found)) await this.registry.register()
    if (!this.leavePausedAlone() && !isOutdated) return found
    return this.looks.look(this.requests(what), { maxTimeMS: 10_000 })
  }

  /** Leaves single paused documents alone; returns true if one is no longer paused, so that a look without it has missed it. */
  private leavePausedAlone(): boolean {
    const resumed = this.lifecycles.map(({ refusing, paused }) => refusing.leaveAlone(paused().ids))
    return resumed.includes(true)
  }

  private async serve(parts: RunningLifecycle, found: LookResult, counts: TickCounts): Promise<void> {
    parts.runner.cancel(this.registry.cancels(parts.model))
    const paused = parts.paused()
    const due = new Set((found.due.get(parts.model.name) ?? []).filter((phase) => !paused.has(phase)))
    counts.due += [...due].filter((phase) => !isLeftAlone(parts, phase)).length
    if (found.outboxes.has(parts.model.name)) {
      counts.due += 1
      parts.deliverer?.found()
    }
    try {
      await parts.tickDuties.serve(found, due, counts)
    } finally {
      // Even when a rule fails: due documents have nothing to do with that.
      parts.claimer.found(due)
      parts.claimer.offer([...due])
    }
    const isWorking = (phase: string) => parts.model.phases.get(phase)?.kind === 'working'
    for (const phase of parts.claimer.leftDue(new Set([...due].filter(isWorking)))) await parts.tickDuties.date(phase)
  }
}

/**
 * True if all documents that a look finds due in a phase wait for slots of a limit, or refuse writes, as far as this replica knows: there are more of
 * them than a look can name, and a claim has just found no others.
 */
const isLeftAlone = ({ model, refusing, claimer }: RunningLifecycle, phase: string): boolean =>
  claimer.waitsForSlots(phase) ||
  (refusing.unnamed > 0 && (model.phases.get(phase)?.kind === 'final' || claimer.foundNothing(phase)))

/** The request of each tick for a lifecycle: working and final phases, resting ones with a deadline, rules and renames. */
export const lookRequestOf = (model: LifecycleModel, terms: Terms): LookRequest => ({
  lifecycle: model.name,
  collection: model.collection,
  terms,
  phases: [...model.phases.values()]
    .filter((phase) => phase.kind !== 'resting' || phase.deadline)
    .map((phase) => phase.name),
  rules: model.rules,
  renames: model.renames,
  order: model.settings,
})
