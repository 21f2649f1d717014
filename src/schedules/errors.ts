import { numbered } from '../options/index.js'
/** A schedule that can't run; lists every problem. Nothing was stored. */
export class InvalidSchedule extends Error {
  override readonly name = 'InvalidSchedule'
  constructor(
    /** The schedule's id; '(all)' for `pauseAll`. */
    readonly schedule: string,
    /** For each problem: the field, what was expected, and what was given. */
    readonly problems: readonly string[],
  ) {
    super(
      `schedule '${schedule}' can't run: ${problems.length === 1 ? problems[0] : `\n${problems.map((problem) => `  - ${problem}`).join('\n')}`}`,
    )
  }
}

/** A backfill that can't be started, or can't continue; lists every problem. Nothing was stored. */
export class InvalidBackfill extends Error {
  override readonly name = 'InvalidBackfill'
  constructor(
    /** The schedule's id. */
    readonly schedule: string,
    /** For each problem: the option, what was expected, and what was given. */
    readonly problems: readonly string[],
    /** True if its options are invalid at any time; false if the backfill only can't be done now. */
    readonly ofOptions = false,
  ) {
    super(`backfill of '${schedule}': ${problems.join('; ')}`)
  }
}

/** Options of `new Schedules(...)` that can't be used; lists every problem. */
export class InvalidSchedulesOptions extends Error {
  override readonly name = 'InvalidSchedulesOptions'
  constructor(
    /** For each problem: the option, what was expected, and what was given. */
    readonly problems: readonly string[],
  ) {
    super(`new Schedules: ${problems.join('; ')}`)
  }
}

/** A task's registration that can't be used. */
export class InvalidTask extends Error {
  override readonly name = 'InvalidTask'
}

/** No schedule has this id. */
export class NoSuchSchedule extends Error {
  override readonly name = 'NoSuchSchedule'
  constructor(
    /** The id that was given. */
    readonly schedule: string,
  ) {
    super(`there is no schedule '${schedule}'`)
  }
}

/** A schedule is paused by several people, and none of these pauses is the one that is to end. Nothing was stored. */
export class PausedByOthers extends Error {
  override readonly name = 'PausedByOthers'
  constructor(
    /** The schedule's id. */
    readonly schedule: string,
    /** Who has paused it; undefined: somebody who wasn't named. */
    readonly by: readonly (string | undefined)[],
    /** Whose pause was to end; undefined: that of whoever asked. */
    readonly of: string | undefined,
  ) {
    super(
      `schedule '${schedule}' is paused by ${by.map((name) => name ?? 'somebody').join(', ')}: ${of === undefined ? 'none of these pauses is yours' : `none is ${of}'s`}; \`of\` says whose is to end`,
    )
  }
}

/** A run took longer than its schedule's `timeout`, and its signal was aborted. */
export class RunTimeout extends Error {
  override readonly name = 'RunTimeout'
  constructor(
    /** The timeout, in ms. */
    readonly afterMs: number,
    /** True if the task ignored its signal for 10 s more: it then keeps its lock until it ends. */
    readonly stillRuns: boolean,
  ) {
    super(
      `the run did not end within its timeout of ${afterMs} ms${stillRuns ? '; it ignores its signal and is still running, so its lock is kept until it ends' : ''}`,
    )
  }
}

/** The run's named lock was freed by an operator, or expired while its server could not be reached: another run may begin. */
export class RunLockLost extends Error {
  override readonly name = 'RunLockLost'
  constructor(
    /** The lock's name: `scheduler_lock:<schedule>`, or one of its further places. */
    readonly lock: string,
  ) {
    super(
      `the lock '${lock}' of this run was freed or has expired; the run was stopped so that no other runs at the same time`,
    )
  }
}

/** The replicas that ran a run were lost, one after the other. */
export class ReplicasLost extends Error {
  override readonly name = 'ReplicasLost'
  constructor(
    /** The number of lost replicas: 3. */
    readonly times: number,
  ) {
    super(`${numbered(times, 'replica was', 'replicas were')} lost while running it; it may be what kills them`)
  }
}
