import { TASK_NAME } from './definition/read-schedule.js'
import type { Json } from './definition/schedule-fields.js'
import type { RunDocument } from './documents.js'
import { InvalidTask } from './errors.js'

/** The run as its task sees it. */
export interface TaskRun<Context = unknown> {
  /** `<schedule>@<due time>`. */
  readonly id: string
  /** The schedule's id. */
  readonly schedule: string
  /** When it was due, without jitter; for a manual run, when it was requested. A later try has the same. */
  readonly scheduledFor: Date
  /** The trigger: 'schedule' if it was due, 'manual' if it was requested, 'backfill' if all due times of a range were requested. */
  readonly trigger: 'schedule' | 'manual' | 'backfill'
  /** The number of the try, from 1. */
  readonly attempt: number
  /** A number that grows each time the schedule's lock is taken: outside systems refuse lower ones. */
  readonly fence: number
  /** A signal that aborts at the timeout, when the lease or the lock is lost, and at the end of `grace` on shutdown. */
  readonly signal: AbortSignal
  /** The value that `context` of the options returned when this run began: databases, clients. */
  readonly context: Context
  /** Keeps a line with the run: the first 50 and the latest 150, of 1,000 characters each. */
  log(message: string, fields?: Json): void
  /** Adds to a counter of the run, such as `filesProcessed`. */
  count(counter: string, by?: number): void
}

/**
 * Called with a run after its outcome was stored; again if the replica dies in the meantime. An error that it throws changes no outcome.
 */
export type RunCallback<Context = unknown> = (run: Readonly<RunDocument>, context: Context) => unknown

/**
 * A task's function. It gets JSON and returns JSON or nothing; anything else it needs is in `run.context`. It may run again after a crash:
 * make it idempotent, or pass `run.fence` to the systems that it writes to.
 */
// biome-ignore lint/suspicious/noExplicitAny: each task knows its own arguments
export type TaskFunction<Context = unknown, Args = any> = (args: Args, run: TaskRun<Context>) => unknown

/** A task, and the callbacks for the end of its runs. */
export interface TaskWithCallbacks<Context = unknown> {
  /** The task itself: called once for each try. */
  readonly run: TaskFunction<Context>
  /** Called when a run has Completed. */
  readonly onSuccess?: RunCallback<Context>
  /** Called when a run has Failed: after its last try, not between tries. */
  readonly onFailure?: RunCallback<Context>
  /** Called when a run was Missed because it was late; not if it was Missed because no replica knew its task. */
  readonly onMissed?: RunCallback<Context>
}

/** A function or an object that is registered under a task's name. */
export type Task<Context = unknown> = TaskFunction<Context> | TaskWithCallbacks<Context>

const CALLBACKS = ['onSuccess', 'onFailure', 'onMissed'] as const

/** The tasks that this process knows, by name. */
export class TaskRegistry<Context = unknown> {
  private readonly tasks = new Map<string, TaskWithCallbacks<Context>>()

  /**
   * @param own what is run of a task's function
   * @throws InvalidTask
   */
  constructor(
    given: Readonly<Record<string, Task<Context>>>,
    private readonly own: (task: TaskFunction<Context>) => TaskFunction<Context>,
  ) {
    for (const [name, task] of Object.entries(given)) this.add(name, task)
  }

  get names(): string[] {
    return [...this.tasks.keys()]
  }

  get(name: string): TaskWithCallbacks<Context> | undefined {
    return this.tasks.get(name)
  }

  /** @throws InvalidTask for a name that is taken, or something that can't be run */
  add(name: string, task: Task<Context>): void {
    if (!TASK_NAME.test(name)) {
      throw new InvalidTask(
        `task '${name}': expected a name of 1 to 200 characters, without spaces, that doesn't begin with '$' or '.'`,
      )
    }
    if (this.tasks.has(name)) throw new InvalidTask(`task '${name}' is already registered; give this one another name`)
    const checked = typeof task === 'function' ? { run: task } : task
    const unknown = Object.keys(checked ?? {}).filter((key) => !['run', ...CALLBACKS].includes(key))
    if (typeof checked?.run !== 'function' || unknown.length > 0) {
      const what = unknown.length > 0 ? `unknown ${unknown.join(', ')}` : typeof task
      throw new InvalidTask(`task '${name}': expected a function, or { run, ${CALLBACKS.join(', ')} }; got ${what}`)
    }
    for (const callback of CALLBACKS) {
      if (checked[callback] !== undefined && typeof checked[callback] !== 'function') {
        throw new InvalidTask(`task '${name}': ${callback}: expected a function, got ${typeof checked[callback]}`)
      }
    }
    this.tasks.set(name, { ...checked, run: this.own(checked.run) })
  }
}
