import { namesNobodyKnows, onClaimIndex } from '../lock/index.js'
import { type BoundLifecycle, lifecycleOf, type Step } from '../phases/index.js'
import type { Duration } from '../time/index.js'
import { decide, type NewRun, SCHEDULE_PHASES, type SchedulePhase } from './decide.js'
import { type ScheduleDocument, serverTime } from './documents.js'
import { HISTORY_INDEX_SORT } from './indexes.js'
import { observedRun, type RunEndReason, type ScheduleObservers } from './observer.js'
import type { Workplace } from './workplace.js'

/** The reasons for waiting, by phase. Each phase may become any other: the owner's fields decide. */
const WAITS_FOR: Record<SchedulePhase, string> = {
  Active: 'its next run',
  Paused: 'somebody to resume it',
  Finished: 'nothing: it will not be due again',
  Broken: 'somebody to fix it',
}

const SCHEDULES_AT_ONCE = 64
/** The number of runs of one schedule that may wait for a replica that knows their task. */
export const MOST_WAITING = 100

/**
 * Limits the runs of a task that no replica has known for long: they are recorded as Missed immediately. Otherwise they would be kept
 * forever.
 */
async function bounded<Context>(
  { tasks, runs: stored, logger }: Workplace<Context>,
  runs: readonly NewRun[],
  now: Date,
): Promise<readonly NewRun[]> {
  const [first] = runs
  if (!first || tasks.get(first.task)) return runs
  const latest = await stored()
    .find({ schedule: first.schedule }, { projection: { phase: 1 }, sort: HISTORY_INDEX_SORT, limit: MOST_WAITING })
    .toArray()
  if (latest.length < MOST_WAITING || latest.some(({ phase }) => phase !== 'Queued' && phase !== 'Missed')) return runs
  const filter = { phase: 'Queued', schedule: first.schedule } as const
  const waiting = await onClaimIndex(stored(), (hint) =>
    stored()
      .find(filter, { projection: { _id: 1 }, hint, limit: MOST_WAITING })
      .toArray(),
  )
  if (waiting.length < MOST_WAITING) return runs
  const reason = `no replica knows the task '${first.task}': ${MOST_WAITING} earlier runs are waiting for one`
  if (latest[0]!.phase === 'Queued') logger.warn(`schedule '${first.schedule}': ${reason}`, { task: first.task })
  return runs.map((run) =>
    run.phase === 'Queued' ? { ...run, phase: 'Missed', outcome: 'Missed', reason, completedAt: now } : run,
  )
}

const UNKNOWN_AGAIN_MS = 3_600_000
const MOST_UNKNOWN = 1_000

/** Logs tasks that no replica knows, at the first run of each that is stored here, and once an hour. */
class UnknownTasks<Context> {
  private readonly looked = new Map<string, number>()

  constructor(private readonly workplace: Workplace<Context>) {}

  async look([run]: readonly NewRun[]): Promise<void> {
    const { tasks, clock, logger, db, settings } = this.workplace
    if (!run || tasks.get(run.task)) return
    const nowMs = clock.monotonicMs()
    const before = this.looked.get(run.task)
    if (before !== undefined && nowMs - before < UNKNOWN_AGAIN_MS) return
    if (this.looked.size >= MOST_UNKNOWN) this.looked.clear()
    this.looked.set(run.task, nowMs)
    const [name] = await namesNobodyKnows(db(), `${settings.collections.schedules}.runs`, [run.task])
    if (name === undefined) return
    logger.warn(
      `schedule '${run.schedule}': no replica that runs knows the task '${name}': its runs are Queued until one does; correct the name, or start a version that has it`,
      { task: name },
    )
  }
}

/** Notifies observers of runs that were over when they were stored. */
function tellOfOver(observers: ScheduleObservers, runs: readonly NewRun[], why: RunEndReason = 'coalesced'): void {
  for (const run of runs) {
    if (run.phase === 'Skipped') observers.tell('ended', { ...observedRun(run), outcome: 'Skipped', why })
    if (run.phase === 'Missed') observers.tell('ended', { ...observedRun(run), outcome: 'Missed', why: 'unknownTask' })
  }
}

const NOT_BEFORE_AN_EDIT: Duration = '3650d'

/**
 * Schedules as documents that sleep until they are due: `lockedAt` encodes the next run, so that distant and inactive ones cost nothing.
 * All four phases are handled by the same rule.
 */
export function scheduleLifecycle<Context>(workplace: Workplace<Context>): BoundLifecycle<ScheduleDocument> {
  const { settings, clock, logger, store, observers } = workplace
  const definition = lifecycleOf<ScheduleDocument>().define({
    name: settings.collections.schedules,
    collection: settings.collections.schedules,
    phases: {
      Active: { next: ['Paused', 'Finished', 'Broken'], entry: true },
      Paused: { next: ['Active', 'Finished', 'Broken'], entry: true },
      // A lifecycle needs an end; schedules stay until they are deleted.
      Finished: { next: ['Active', 'Paused', 'Broken', 'Removed'], entry: true },
      Broken: { next: ['Active', 'Paused', 'Finished'], entry: true },
      Removed: { final: true },
    },
    lockTimeout: settings.lockTimeout,
    concurrency: SCHEDULES_AT_ONCE,
    maxAttempts: 1_000,
    maxClaims: 1_000,
  })
  const unknown = new UnknownTasks(workplace)
  const plan = async (doc: Readonly<ScheduleDocument>, step: Step<SchedulePhase, ScheduleDocument>) => {
    const claimedAt = serverTime(doc)
    const startedMs = clock.monotonicMs()
    const decision = decide(doc, claimedAt)
    const { warnings } = decision.set
    if (warnings) logger.warn(`schedule '${doc._id}': ${warnings.join('; ')}`, { schedule: doc._id })
    // First the runs, then the next time: after a crash in between, the runs are there already.
    await unknown.look(decision.runs)
    const runs = await bounded(workplace, decision.runs, claimedAt)
    const { dropped } = decision
    await store.store([...(dropped?.runs ?? []), ...runs])
    if (dropped) tellOfOver(observers, dropped.runs, dropped.why)
    tellOfOver(observers, runs)
    const { phase, set, wakeAt } = decision
    if (phase !== (doc as { phase?: unknown }).phase) return step.moveTo(phase, { set })
    if (!wakeAt) return step.wait(WAITS_FOR[phase], { for: NOT_BEFORE_AN_EDIT, set })
    const spentMs = clock.monotonicMs() - startedMs
    const ms = Math.max(0, Math.ceil(wakeAt.getTime() - claimedAt.getTime() - spentMs))
    return step.wait(WAITS_FOR[phase], { for: `${ms}ms`, set })
  }
  const handlers = Object.fromEntries(SCHEDULE_PHASES.map((phase) => [phase, plan]))
  return definition.handle(handlers as never) as unknown as BoundLifecycle<ScheduleDocument>
}
