import { Need, needsModule, note, noted } from '../../decorated/index.js'
import { InvalidTask, type ScheduleFields, type TaskRun } from '../../schedules/index.js'

const DECLARED = Symbol.for('phaselock:scheduled')

/** The token of a provider of SchedulesModule: if it exists, decorated methods are found. @internal */
export const SCHEDULES_OPTIONS = Symbol.for('phaselock:schedules-options')

/** Met by SchedulesModule, which finds the methods. @internal */
export const SCHEDULES_NEED = new Need({
  decorator: '@Scheduled and @ScheduledTask',
  module: 'SchedulesModule.forRoot() (phaselock/schedules/nest)',
  without: 'never runs',
  token: SCHEDULES_OPTIONS,
})

/** The options of `@Scheduled`: a schedule without its task, which is the method. */
export interface ScheduledOptions extends Omit<ScheduleFields, 'task'> {
  /** The schedule's id, the same on all replicas. Default: the task's name. */
  readonly id?: string
  /** The name under which the method is registered as a task. Default: `Class.method`. */
  readonly task?: string
}

/** A method declared as a task. */
export interface DeclaredTask {
  readonly method: string | symbol
  /** Undefined: `Class.method`. */
  readonly task: string | undefined
  /** Undefined: the method is only a task, for schedules in the database. */
  readonly schedule: ScheduledOptions | undefined
}

// biome-ignore lint/suspicious/noExplicitAny: each method knows its own arguments
type TaskMethod = (args: any, run: TaskRun<any>) => unknown
type TaskDecorator = <M extends TaskMethod>(
  proto: object,
  key: string | symbol,
  method: TypedPropertyDescriptor<M>,
) => void

/**
 * Makes the method below a task with this schedule: when the app starts it replaces the schedule with the same id. The
 * method gets `args` and the run.
 * @throws InvalidTask
 */
export function Scheduled(options: ScheduledOptions): TaskDecorator {
  if (typeof options !== 'object' || options === null) {
    const hint = typeof options === 'string' ? `; write @Scheduled({ cron: '${String(options)}' })` : ''
    throw new InvalidTask(`@Scheduled: expected { cron }, { interval } or { at }, got ${String(options)}${hint}`)
  }
  const { task, ...schedule } = options
  return (proto, key) => declare(proto, { method: key, task, schedule: schedule as ScheduledOptions })
}

/** Makes the method below the task of this name, for schedules that are created elsewhere: in the database, by `upsert`. */
export function ScheduledTask(task: string): TaskDecorator {
  if (typeof task !== 'string') throw new InvalidTask(`@ScheduledTask: expected the task's name, got ${String(task)}`)
  return (proto, key) => declare(proto, { method: key, task, schedule: undefined })
}

function declare(proto: object, one: DeclaredTask): void {
  needsModule(proto, one.method, SCHEDULES_NEED)
  note(proto, DECLARED, one)
}

/** Returns the tasks noted on the class itself, including inherited ones. */
export function declaredTasks(instance: unknown): readonly DeclaredTask[] {
  return typeof instance === 'object' ? noted(instance, DECLARED) : []
}
