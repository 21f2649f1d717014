import type { Document } from 'mongodb'
import { isRemovedPhase } from '../lock/index.js'
import { type BoundLifecycle, DocumentExists, type EntryOf, endsOf, type NewChild } from '../phases/index.js'
import { InvalidTask } from './errors.js'
import type { TaskFunction, TaskRun } from './tasks.js'

/** What a task that starts documents leaves in its run. */
export interface StartedDocument {
  /** The lifecycle of the document. */
  readonly lifecycle: string
  /** Its `_id`: that of the run, `<schedule>@<due time>`. */
  readonly id: string
  /** The document of an earlier run that goes on, so that none was started; absent: one was. */
  readonly skippedFor?: string
}

/** How a task starts documents. */
export interface StartsOptions {
  /**
   * What to do while the document that the schedule started last hasn't ended (in a final phase, or a resting one in which no document begins): `skip`
   * it, or `start` another one. Default `skip`.
   */
  readonly whileOpen?: 'skip' | 'start' | undefined
}

type Owned = { readonly _id: string }
type StartedFields<Doc, G> = Omit<NewChild<Doc, EntryOf<G>>, '_id'>

/**
 * A task that starts a document of a lifecycle for each run: the work then survives crashes step by step, and its run ends at once. The document's
 * `_id` is the run's, so each due time starts one, however often its run is tried.
 * @param lifecycle with its handlers, given to a replica of this process or attached to a database
 * @param document its own fields, by the schedule's `args`
 * @throws InvalidTask
 * @example new Schedules({ tasks: { nightly: starts(nights, (args) => ({ day: args.day })) } })
 */
// biome-ignore lint/suspicious/noExplicitAny: each task knows its own arguments
export function starts<Doc extends Owned, G, Args = any>(
  lifecycle: BoundLifecycle<Doc, G>,
  document: (args: Args, run: TaskRun<unknown>) => StartedFields<Doc, G> | Promise<StartedFields<Doc, G>>,
  { whileOpen = 'skip', ...others }: StartsOptions = {},
): TaskFunction<unknown, Args> {
  const [unknown] = Object.keys(others)
  if (unknown !== undefined) throw new InvalidTask(`starts: unknown option '${unknown}'; known: whileOpen`)
  if (whileOpen !== 'skip' && whileOpen !== 'start')
    throw new InvalidTask(`starts: expected whileOpen to be 'skip' or 'start', got ${String(whileOpen)}`)
  if (typeof lifecycle?.insert !== 'function' || typeof document !== 'function')
    throw new InvalidTask('starts: expected a lifecycle with its handlers, and a function that returns a document')
  return async (args, run): Promise<StartedDocument> => {
    const started = { lifecycle: lifecycle.name, id: run.id }
    const open = whileOpen === 'skip' ? await openBefore(lifecycle as unknown as BoundLifecycle, run) : undefined
    if (open !== undefined) {
      run.log(`not started: ${open} goes on`)
      return { ...started, skippedFor: open }
    }
    try {
      await lifecycle.insert({ ...fieldsOf(await document(args, run)), _id: run.id } as never)
    } catch (error) {
      // By an earlier try of this run, which ended before that was recorded.
      if (!(error instanceof DocumentExists && error.index === '_id_' && error.id === run.id)) throw error
    }
    return started
  }
}

function fieldsOf(given: unknown): object {
  if (typeof given === 'object' && given !== null && !Array.isArray(given)) return given
  throw new InvalidTask(`starts: expected its function to return a document's fields, got ${String(given)}`)
}

/** The document that the schedule started last, if it goes on: one key, as the `_id`s of its documents are in the order of their due times. */
async function openBefore(lifecycle: BoundLifecycle, { id, schedule }: TaskRun): Promise<string | undefined> {
  const { documents, model } = lifecycle.owner()
  // `A` is the character after `@`.
  const range = { $gte: `${schedule}@`, $lt: `${schedule}A` }
  const options = { sort: { _id: -1 }, projection: { phase: 1 }, hint: { _id: 1 } } as const
  const last: Document | null = await documents.findOne({ _id: range as never }, options)
  // One that is removed is there only until its callbacks have been told.
  const hasEnded = !last || endsOf(model).includes(last['phase']) || isRemovedPhase(last['phase'])
  return hasEnded || last['_id'] === id ? undefined : String(last['_id'])
}
