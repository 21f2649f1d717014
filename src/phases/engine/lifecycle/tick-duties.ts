import { isServerError } from '../../../database/index.js'
import {
  type DutyQuery,
  dateUndated,
  isRemovedPhase,
  type LookResult,
  OTHER,
  phasesIn,
  REMOVED,
  RepairLook,
  removedPhase,
  removeFinal,
  typeName,
} from '../../../lock/index.js'
import { notifyingOf } from '../../model/model.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import { applyRename, applyRule, type MoveResult } from './move-documents.js'

const REMOVAL_BATCH = 1_000
/** The interval of repairs; if a look finds something, it repairs immediately. Only a repair also finds arrays, which no look can ask for. */
const REPAIRS_EVERY_MS = 600_000

const MOST_WARNED = 10_000

/** The duty of documents that no claim would find. */
export const REPAIR = 'repair'
/** The duty of phases that aren't a lifecycle's. */
export const FOREIGN_PHASES = 'foreign phases'

/** The results of a tick. */
export interface TickCounts {
  /** The number of documents moved by state rules. */
  ruled: number
  /** The number of final documents removed. */
  removed: number
  /** The number of phases with due documents. */
  due: number
}

/** The work of a tick for one lifecycle besides running handlers: state rules, renames, removals, repairs, warnings. */
export class TickDuties {
  private readonly repairLook: RepairLook
  private repairedAtMs = Number.NEGATIVE_INFINITY
  /** Unknown phases that have been warned of. */
  private warned = new Set<string>()

  constructor(private readonly env: LifecycleEnvironment) {
    const { model, collection, terms, refusing, clock } = env
    this.repairLook = new RepairLook(collection, terms, [...model.phases.keys()], refusing, () => clock.monotonicMs())
  }

  /** The questions for a look: is there a document that no claim would find, or one in a phase that isn't this lifecycle's? */
  queries(): DutyQuery[] {
    const { model } = this.env
    const siblings = this.env.registry.siblingPhases(model)
    const own = [...model.phases.keys(), ...(model.settings.callbacks ? [removedPhase(model.name)] : [])]
    const known = [...own, ...siblings, ...model.renames.map((rename) => rename.from)]
    const repairs = this.repairLook.matches().map((match) => ({ name: REPAIR, match }))
    // A key for each gap between them.
    return [...repairs, { name: FOREIGN_PHASES, match: { phase: { $nin: [...known, null] } } }]
  }

  /**
   * Warns of documents in phases that the lifecycle doesn't know (a typo, a newer version): they are never claimed and never changed. One
   * warning for each phase; those of other lifecycles in the same collection are known. Reads one key of the claim index for each phase.
   */
  async warnOfUnknownPhases(): Promise<void> {
    const { model, collection, broken, lines } = this.env
    const phases = await phasesIn(collection)
    for (const phase of phases) if (typeof phase !== 'string') broken.phase(typeName(phase))
    const foreign = phases.filter((phase) => typeof phase === 'string' && !model.phases.has(phase)) as string[]
    if (foreign.length === 0) return
    const known = new Set([
      ...(await this.env.registry.phasesBeside(model)),
      ...model.renames.map((rename) => rename.from),
    ])
    const own = [...model.phases.keys()].join(', ')
    for (const phase of foreign) {
      if (known.has(phase) || isRemovedPhase(phase) || this.warned.has(phase)) continue
      if (this.warned.size >= MOST_WARNED) this.warned = new Set()
      this.warned.add(phase)
      const message = `${model.name}: documents in the unknown phase '${phase}' are left alone; known phases: ${own}`
      lines.warn({ kind: 'documents in unknown phases' }, message, { lifecycle: model.name, phase })
    }
  }

  /** Finds and mends documents that no claim would find: when a look has found some, and every ten minutes. */
  async repair(isFound: boolean): Promise<void> {
    const { clock, broken } = this.env
    if (!isFound && clock.monotonicMs() - this.repairedAtMs < REPAIRS_EVERY_MS) return
    this.repairedAtMs = clock.monotonicMs()
    const { repaired, refused } = await this.repairLook.repair()
    for (const { id, found } of repaired) broken.repaired(id, found)
    for (const one of refused) broken.refused(one)
  }

  /**
   * Moves and removes the documents that a look has found, and adds to `due` the phases where that makes something due. Does nothing while the whole
   * lifecycle is paused; state rules still move documents out of a paused phase.
   */
  async serve(found: LookResult, due: Set<string>, counts: TickCounts): Promise<void> {
    const { model, observer, paused, flow } = this.env
    if (paused().isWhole) return
    for (const rename of found.renames.get(model.name) ?? []) {
      const moved = this.count(await applyRename(this.env, rename), counts)
      if (moved > 0 && model.phases.get(rename.to)?.kind !== 'resting') due.add(rename.to)
    }
    for (const rule of found.rules.get(model.name) ?? []) {
      const moved = this.count(await applyRule(this.env, rule), counts)
      if (moved === 0) continue
      if (model.phases.get(rule.moveTo)?.kind === 'working') due.add(rule.moveTo)
      flow.moved(rule.from.length === 1 ? rule.from[0]! : OTHER, rule.moveTo, 'rule', moved)
      observer.ruled({ lifecycle: model.name, state: rule.when, to: rule.moveTo, count: moved })
    }
    for (const phase of model.phases.values()) {
      if (phase.kind !== 'final' || !due.delete(phase.name)) continue
      const removed = await this.remove(phase.name, phase.keepForMs)
      counts.removed += removed
      if (removed === 0) continue
      flow.moved(phase.name, REMOVED, 'remove', removed)
      observer.removed({ lifecycle: model.name, phase: phase.name, count: removed })
    }
  }

  /**
   * Dates due documents of a phase that don't record since when they are due. No work depends on it: a refusal of the server is tried again later; the
   * tick reports an outage.
   */
  async date(phase: string): Promise<void> {
    try {
      await dateUndated(this.env.collection, this.env.terms(), phase)
    } catch (error) {
      if (!isServerError(error)) throw error
    }
  }

  private count({ moved, refused, more }: MoveResult, counts: TickCounts): number {
    for (const one of refused) this.env.broken.refused(one)
    counts.ruled += moved
    if (more) counts.due += 1 // the next round goes on
    return moved
  }

  private async remove(phase: string, keepForMs: number): Promise<number> {
    const { model, collection, terms, serverClock, random, refusing, broken, callbacks } = this.env
    const dueBound = serverClock.dueBound(terms().lockTimeoutMs)
    if (!dueBound) return 0
    const notifying = model.settings.callbacks?.includes('onRemoved') ? notifyingOf(model) : undefined
    const request = { phase, keepForMs, limit: REMOVAL_BATCH, dueBound, random, refusing, notifying }
    const { removed, quarantined, refused } = await removeFinal(collection, terms(), request)
    if (notifying && removed > 0) callbacks?.found()
    broken.claimed({ broken: quarantined.map(({ id }) => id), odd: [...quarantined], refused: [...refused] })
    return removed
  }
}
