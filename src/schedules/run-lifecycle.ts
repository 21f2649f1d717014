import { LockProviderUnavailable } from '../locks/index.js'
import { type BoundLifecycle, comesAt, lifecycleOf, type Step, Unavailable } from '../phases/index.js'
import { present, type RunDocument, serverTime } from './documents.js'
import { ReplicasLost, RunTimeout } from './errors.js'
import { observedRun } from './observer.js'
import { holdup, isBackfill, whyNot } from './run-admission.js'
import { type Fields, type QueuedStep, RunEnding, type RunningStep } from './run-ending.js'
import { cancelled, isCancel, isItsOwn, lateMs, ofItsOwn, whyFailed } from './run-ends.js'
import { RunLock } from './run-lock.js'
import { RunRecord, runErrorOf } from './run-record.js'
import { tryTask, tryToStart } from './run-task.js'
import { starterOf } from './starts.js'
import type { TaskWithCallbacks } from './tasks.js'
import type { Workplace } from './workplace.js'

/** The delay after which a backfill's run that can't begin looks again; also that of a due run that is blocked by one. */
const LOOK_AGAIN = '2s'
/** The number of tries lost with their replica after which the run has failed. */
const MOST_LOST = 3

/** The delay after which a run looks again at a document that is asked to stop. */
const SOON_MS = 1_000
/** The same for a document in another database, whose end wakes no run. */
const ELSEWHERE_MS = 5_000
/** The delay after which `waitFor` looks again without being woken. */
const LONGEST_SLEEP_MS = 60_000

/** A run's lifecycle: Queued, Running (under its schedule's lock), and its outcome. */
export function runLifecycle<Context>(workplace: Workplace<Context>): BoundLifecycle<RunDocument> {
  const { collections, keepFor, lockTimeout, concurrency } = workplace.settings
  const definition = lifecycleOf<RunDocument>().define({
    name: `${collections.schedules}.runs`,
    collection: collections.runs,
    phases: {
      Queued: { next: ['Running', 'Completed', 'Failed', 'Skipped', 'Missed'], entry: true },
      Running: { next: ['Queued', 'Completed', 'Failed', 'Skipped', 'Missed'] },
      Completed: { final: true, keepFor: keepFor.Completed },
      Failed: { final: true, keepFor: keepFor.Failed },
      Skipped: { final: true, keepFor: keepFor.Skipped },
      Missed: { final: true, keepFor: keepFor.Missed },
    },
    lockTimeout,
    concurrency,
    // A run's own timeout is less: LONGEST_RUN_MS at most.
    stepTimeout: '24h',
    maxAttempts: 1_000,
    // Lost replicas are counted by the run itself.
    maxClaims: 100,
  })
  const runs = new Runs(workplace)
  return definition.handle({
    Queued: (run, step) => runs.queued(run, step),
    Running: (run, step) => runs.running(run, step),
  }) as unknown as BoundLifecycle<RunDocument>
}

class Runs<Context> {
  private readonly ending: RunEnding<Context>

  constructor(private readonly workplace: Workplace<Context>) {
    this.ending = new RunEnding(workplace)
  }

  /** Decides whether the run begins at all, and takes its lock. No code of the task has run yet. */
  async queued(run: Readonly<RunDocument>, step: QueuedStep) {
    const { name } = this.workplace
    const task = this.task(run)
    if (run.outcome) return this.ending.callBack(run, step, task, run.outcome)
    if (run.started) return step.moveTo('Running')
    const now = serverTime(run)
    if (run.retryAt && run.retryAt > now) {
      return step.wait('its next try', { for: `${run.retryAt.getTime() - now.getTime()}ms` })
    }
    const isFirst = !run.startedAt
    if (isFirst && run.startBy && now > comesAt(step, run.startBy)) {
      await this.leave(run)
      const lateMs = now.getTime() - run.scheduledFor.getTime()
      return this.ending.end(run, step, task, 'Missed', 'late', {
        reason: `it would have started ${Math.round(lateMs / 1_000)} s after it was due, later than misfireGraceTime allows`,
      })
    }
    const waitsFor = isFirst ? await holdup(this.workplace, run, now) : undefined
    if (waitsFor) return step.wait(waitsFor, { for: LOOK_AGAIN })
    const gone = isFirst ? await whyNot(this.workplace, run) : undefined
    if (gone) {
      await this.leave(run)
      return this.ending.end(run, step, task, 'Skipped', gone.why, { reason: gone.reason })
    }
    const lock = await this.enter(run, (step.progress.claims ?? 1) > 1)
    const other = lock instanceof RunLock ? await this.openBefore(run, task) : { overlap: lock.heldBy, text: undefined }
    if (!(lock instanceof RunLock) || other) {
      const { overlap, text } = other!
      if (lock instanceof RunLock) await lock.release()
      const who = [overlap.run && `the run ${overlap.run}`, overlap.by && `on ${overlap.by}`].filter(Boolean).join(' ')
      const reason = `overlap: ${text ?? `${who || 'another run'} was running`}`
      // With more than one place, the lock only says that another document is being started.
      const isBrief = !text && run.maxInstances > 1 && starterOf(task.run) !== undefined
      const waits = run.trigger === 'backfill' && run.backfill?.overlap !== 'skip'
      if (waits || isBrief || (await isBackfill(this.workplace, overlap))) return step.wait(reason, { for: LOOK_AGAIN })
      if (isFirst) return this.ending.end(run, step, task, 'Skipped', 'overlap', { reason, overlap })
      return this.ending.end(run, step, task, 'Failed', 'lockTaken', { reason: `no further try: ${reason}`, overlap })
    }
    this.workplace.locks.keep(run, lock)
    // Not in Running: a try that its replica could not end is started again by the next one.
    if (isFirst) this.workplace.observers.tell('started', { ...observedRun(run), lateMs: lateMs(run, now) })
    return step.moveTo('Running', {
      set: { by: name, lockFence: lock.fence, ...(isFirst ? { startedAt: now } : {}), retryAt: null },
    })
  }

  /** Runs the task under the lock that this run already holds; another replica may have taken it. */
  async running(run: Readonly<RunDocument>, step: RunningStep) {
    const { locks, name, clock, context } = this.workplace
    const task = this.task(run)
    const startedMs = clock.monotonicMs()
    const claimedAt = serverTime(run)
    const now = () => new Date(claimedAt.getTime() + clock.monotonicMs() - startedMs)
    if (run.outcome) {
      await this.leave(run)
      return this.ending.callBack(run, step, task, run.outcome)
    }
    if (run.started) return this.follow(run, step, task, now)
    const lost = (step.progress.claims ?? 1) - 1
    const known: RunDocument = { ...run, by: name, ...(lost > 0 ? { lost } : {}) }
    const kept = lost === 0 ? locks.kept(run) : undefined
    const lock = kept ?? (await this.enter(run, true))
    const starter = starterOf(task.run)
    if (!(lock instanceof RunLock)) {
      if (starter) return step.wait('another run to start its document', { for: LOOK_AGAIN })
      const reason = `its lock was taken by ${lock.heldBy.run ?? lock.heldBy.by ?? 'another run'} after its replica was lost`
      const taken = { ...this.counted(known), reason, overlap: lock.heldBy }
      return this.ending.end(known, step, task, 'Failed', 'lockTaken', taken, now)
    }
    const isThere = starter !== undefined && !kept && (await starter.isThere(run))
    if (lost >= MOST_LOST && !isThere) {
      await lock.release()
      const error = runErrorOf(new ReplicasLost(lost))
      return this.ending.end(known, step, task, 'Failed', 'replicasLost', { ...this.counted(known), error }, now)
    }
    // Its lock may have been another's since it was queued.
    const other = starter && !kept && !isThere ? await this.openBefore(run, task) : undefined
    if (other) {
      await lock.release()
      const taken = { ...this.counted(known), reason: `no further try: overlap: ${other.text}`, overlap: other.overlap }
      return this.ending.end(known, step, task, 'Failed', 'lockTaken', taken, now)
    }
    const record = new RunRecord(run, now)
    // Records the replica that runs it now, if another one began it.
    if (run.by !== name || lost > 0) await step.checkpoint({ ...this.counted(known), lockFence: lock.fence })
    const trying = { task, run: known, lock, record, context, signal: step.signal }
    const tried = await (starter ? tryToStart(starter, isThere, trying) : tryTask(trying))
    const isDone = tried.kind === 'returned' && starter?.how.until !== 'ended'
    const result = isDone ? record.result(tried.value) : {}
    const fields: Fields = { ...record.fields(), ...result, ...this.counted(known), lockFence: lock.fence }
    this.warnOf(run, fields)
    if (tried.kind === 'returned') {
      return isDone
        ? this.ending.end(known, step, task, 'Completed', 'done', { ...fields, error: null }, now, lock)
        : this.handOver({ ...known, ...fields, started: starter!.of(run) }, step, task, now, lock)
    }
    const isCancelled = tried.kind === 'threw' && isCancel(step.signal.reason)
    if (tried.kind === 'threw' && step.signal.aborted && !isCancelled && !isItsOwn(tried.error)) {
      // The failure is not the run's own: another replica continues, and enters the lock that carries this run's id.
      lock.forget()
      throw tried.error
    }
    const held = tried.kind === 'abandoned' ? undefined : lock
    if (starter && (isCancelled || isItsOwn(tried.error))) {
      // It may have started its document, which must stop as well.
      const stopping = isCancelled ? cancelled(step.signal) : ofItsOwn(tried.error as Error)
      return this.handOver({ ...known, ...fields, started: starter.of(run), stopping }, step, task, now, held)
    }
    if (isCancelled) {
      const error = runErrorOf(step.signal.reason as Error)
      return this.ending.end(known, step, task, 'Failed', 'cancelled', { ...fields, error }, now, lock)
    }
    const failed = { ...fields, error: runErrorOf(tried.error) }
    const attempt = run.attempt ?? 1
    if (attempt >= run.retry.attempts || tried.kind === 'abandoned') {
      return this.ending.end(known, step, task, 'Failed', whyFailed(tried.error), failed, now, held)
    }
    const pauseMs = Math.min(run.retry.longestMs, run.retry.backOffMs * 2 ** (attempt - 1))
    await lock.release()
    const retryAt = new Date(now().getTime() + pauseMs)
    this.workplace.observers.tell('retried', { ...observedRun(run), attempt })
    return step.moveTo('Queued', { set: { ...failed, attempt: attempt + 1, retryAt } })
  }

  /** Hands the run over to its document. The lock is freed once that is stored: from then on the open document counts. */
  private async handOver(
    run: Readonly<RunDocument>,
    step: RunningStep,
    task: TaskWithCallbacks<Context>,
    now: () => Date,
    lock: RunLock | undefined,
  ) {
    const { by, lost, log, logDropped, counters, lockFence, notKept, started, stopping } = run
    try {
      await step.checkpoint(present({ by, lost, log, logDropped, counters, lockFence, notKept, started, stopping }))
    } finally {
      await lock?.release()
    }
    return this.follow(run, step, task, now)
  }

  /**
   * Waits for the end of the run's document, without a lease, a place or a lock, and takes it over. A run that is to stop asks its document
   * to stop, and fails once no step of the document is running.
   */
  private async follow(
    run: Readonly<RunDocument>,
    step: RunningStep,
    task: TaskWithCallbacks<Context>,
    now: () => Date,
  ) {
    const starter = starterOf(task.run)
    if (!starter) throw new Error(`expected the task '${run.task}' to start documents, as it did when ${run._id} began`)
    const found = await starter.look(step as unknown as Step<never, RunDocument>, run._id)
    if (found.kind === 'ended') {
      const record = new RunRecord(run, now)
      record.takeOver(found.left.counters)
      const fields = { ...record.result(found.left.result), ...record.fields(), error: found.error }
      this.warnOf(run, fields)
      const [outcome, why] = found.error ? (['Failed', 'error'] as const) : (['Completed', 'done'] as const)
      return this.ending.end(run, step, task, outcome, why, fields, () => found.at ?? now())
    }
    const endsAt = run.timeoutMs == null ? undefined : new Date(run.startedAt!.getTime() + run.timeoutMs)
    const leftMs = endsAt && comesAt(step, endsAt).getTime() - now().getTime()
    const isLate = leftMs !== undefined && leftMs <= 0
    const stopping = run.stopping ?? (isLate ? ofItsOwn(new RunTimeout(run.timeoutMs!, false)) : undefined)
    if (stopping) {
      const { why, error } = stopping
      const isOver = found.kind === 'gone' || (await starter.stop(run._id, found.isParked, stopping))
      if (isOver) return this.ending.end(run, step, task, 'Failed', why, { error }, now)
      return this.asleep(step, `${found.text}, and is asked to stop`, SOON_MS, { stopping })
    }
    if (found.kind === 'gone') return this.ending.end(run, step, task, 'Failed', 'removed', { error: found.error }, now)
    const longestMs = found.isHere ? undefined : ELSEWHERE_MS
    const forMs = Math.min(leftMs ?? Number.POSITIVE_INFINITY, longestMs ?? LONGEST_SLEEP_MS)
    return this.asleep(step, found.text, forMs < LONGEST_SLEEP_MS ? Math.ceil(forMs) : undefined, {})
  }

  private asleep(step: RunningStep, reason: string, forMs: number | undefined, set: Fields) {
    // The engine would park a step that was cancelled; the run has to fail instead.
    if (isCancel(step.signal.reason))
      return step.moveTo('Queued', { set: { ...set, stopping: cancelled(step.signal) } })
    return step.wait(reason, { set, ...(forMs !== undefined && { for: `${forMs}ms` as const }) })
  }

  /**
   * The open document that a task which starts documents has to wait for. Called under the lock, so that no other document is started in
   * the meantime.
   */
  private async openBefore(run: Readonly<RunDocument>, task: TaskWithCallbacks<Context>) {
    return starterOf(task.run)?.openBefore(run, this.workplace.runs())
  }

  /** Enters the run's lock. Nothing runs while the locks' server is unreachable; that uses up no try. */
  private async enter(run: Readonly<RunDocument>, again: boolean) {
    // Documents are started one at a time, because each start counts the open ones.
    const places = starterOf(this.task(run).run) ? { ...run, maxInstances: 1 } : run
    try {
      return await this.workplace.locks.enter(places, again)
    } catch (error) {
      if (!(error instanceof LockProviderUnavailable)) throw error
      throw new Unavailable(error.message.slice(0, 500), { retryAfter: '1s', cause: error })
    }
  }

  /** Frees the run's lock, if an earlier replica has entered it; otherwise, or if the locks' server is unreachable, the lock expires. */
  private async leave(run: Readonly<RunDocument>): Promise<void> {
    try {
      await this.workplace.locks.release(run)
    } catch (error) {
      if (!(error instanceof LockProviderUnavailable)) throw error
      this.workplace.logger.warn(`could not check the lock of run ${run._id}: ${error.message}`, {
        run: run._id,
      })
    }
  }

  private warnOf(run: Readonly<RunDocument>, { notKept = [] }: Fields): void {
    for (const problem of notKept) this.workplace.logger.warn(`run ${run._id}: not kept: ${problem}`, { run: run._id })
  }

  private counted(run: RunDocument): Fields {
    return { by: run.by!, ...(run.lost ? { lost: run.lost } : {}) }
  }

  private task(run: Readonly<RunDocument>): TaskWithCallbacks<Context> {
    const task = this.workplace.tasks.get(run.task)
    if (task) return task
    throw new Error(`expected to know the task '${run.task}'; known: ${this.workplace.tasks.names.join(', ')}`)
  }
}
