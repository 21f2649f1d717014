import type { BoundLifecycle, EntryOf, NewChild } from '../phases/index.js'
import { InvalidTask } from './errors.js'
import { type Owned, type OwnerOf, Starter } from './starter.js'
import type { TaskFunction, TaskRun } from './tasks.js'

/** The options of a task that starts documents. */
export interface StartsOptions {
  /**
   * The end of a run: `ended`, when its document has ended (in a final phase, or in a resting phase where no document begins), with the
   * same outcome; or `started`, as soon as it has started the document. Default `ended`.
   */
  readonly until?: 'ended' | 'started' | undefined
  /**
   * The behavior of a run while `maxInstances` documents of the schedule haven't ended: `skip` it, or `start` another document. Default
   * `skip`.
   */
  readonly whileOpen?: 'skip' | 'start' | undefined
}

type StartedFields<Doc, G> = Omit<NewChild<Doc, EntryOf<G>>, '_id'>

const STARTERS = new WeakMap<TaskFunction<never>, Starter>()

/** The starter of a task that starts documents; undefined for any other task. */
export const starterOf = (task: TaskFunction<never>): Starter | undefined => STARTERS.get(task)

/** The same task for one of several apps in this process; any other task as it is. */
export function taskForApp<Context>(task: TaskFunction<Context>, ownerOf: OwnerOf): TaskFunction<Context> {
  const starter = starterOf(task)
  if (!starter) return task
  const own: TaskFunction<Context> = (args, run) => task(args, run)
  STARTERS.set(own, starter.forApp(ownerOf))
  return own
}

/**
 * A task that starts a document of a lifecycle for each run: the work then survives crashes step by step, and the run ends as its document
 * does. The document's `_id` is the run's, so each due time starts one, regardless of the number of tries.
 * @param lifecycle with its handlers, given to a replica of this process or attached to a database
 * @param document its own fields, by the schedule's `args`
 * @throws InvalidTask
 * @example new Schedules({ tasks: { nightly: starts(nights, (args) => ({ day: args.day })) } })
 */
// biome-ignore lint/suspicious/noExplicitAny: each task knows its own arguments
export function starts<Doc extends Owned, G, Args = any>(
  lifecycle: BoundLifecycle<Doc, G>,
  document: (args: Args, run: TaskRun<unknown>) => StartedFields<Doc, G> | Promise<StartedFields<Doc, G>>,
  { until = 'ended', whileOpen = 'skip', ...others }: StartsOptions = {},
): TaskFunction<unknown, Args> {
  const [unknown] = Object.keys(others)
  if (unknown !== undefined) throw new InvalidTask(`starts: unknown option '${unknown}'; known: until, whileOpen`)
  if (until !== 'ended' && until !== 'started')
    throw new InvalidTask(`starts: expected until to be 'ended' or 'started', got ${String(until)}`)
  if (whileOpen !== 'skip' && whileOpen !== 'start')
    throw new InvalidTask(`starts: expected whileOpen to be 'skip' or 'start', got ${String(whileOpen)}`)
  if (typeof lifecycle?.insert !== 'function' || typeof document !== 'function')
    throw new InvalidTask('starts: expected a lifecycle with its handlers, and a function that returns a document')
  // A run begins and ends by its starter: if another task called it, it would be over before its document is.
  const task: TaskFunction<unknown, Args> = async () => {
    throw new InvalidTask("starts: expected to be a schedule's task itself, and was called by something else")
  }
  STARTERS.set(task, new Starter(lifecycle as unknown as BoundLifecycle, document as never, { until, whileOpen }))
  return task
}
