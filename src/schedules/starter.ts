import type { Collection, Document } from 'mongodb'
import {
  asReadable,
  COMMITTED,
  hasToken,
  isParked,
  isRemovedPhase,
  LEASE_FIELDS,
  onClaimIndex,
  removedPhase,
  tokenOf,
} from '../lock/index.js'
import {
  type BoundLifecycle,
  DocumentExists,
  endPhases,
  endsOf,
  InvalidOutcome,
  type LifecycleModel,
  type OwnerClient,
  type Step,
} from '../phases/index.js'
import { type Overlap, present, type RunDocument, type RunError, type StartedDocument } from './documents.js'
import { InvalidTask } from './errors.js'
import { runErrorOf, withinBounds } from './run-record.js'
import type { StoredRun } from './schedule-reader.js'
import type { TaskRun } from './tasks.js'

export interface Owned {
  readonly _id: string
}

/** The state of a run's document. */
export type StartedState =
  | { readonly kind: 'open'; readonly isParked: boolean; readonly text: string; readonly isHere: boolean }
  /** `at`: when it ended; undefined if that was not recorded. */
  | {
      readonly kind: 'ended'
      readonly at: Date | undefined
      readonly error: RunError | null
      readonly left: { readonly counters: unknown; readonly result: unknown }
    }
  | { readonly kind: 'gone'; readonly error: RunError }

/** A document that blocks another one. */
export interface OpenDocument {
  readonly overlap: Overlap
  readonly text: string
}

/** The maximum number of documents of a schedule that are looked at; only used where runs don't wait for their documents. */
const MOST_LOOKED_AT = 1_000

/**
 * The documents of a lifecycle that the schedules' own replica runs as well; undefined: it doesn't. A lifecycle is one object for all apps of a
 * process, and attached to the database of the one that started last.
 */
export type OwnerOf = (model: LifecycleModel) => OwnerClient | undefined

const FIELDS = { ...LEASE_FIELDS, phase: 1, createdAt: 1 } as const

/** Starts the documents of a task, finds out how they end, and stops them. */
export class Starter {
  constructor(
    private readonly lifecycle: BoundLifecycle,
    private readonly document: (args: unknown, run: TaskRun<unknown>) => unknown,
    readonly how: { readonly until: 'ended' | 'started'; readonly whileOpen: 'skip' | 'start' },
    private readonly ownerOf: OwnerOf = () => undefined,
  ) {}

  /** The same for one of several apps in this process. */
  forApp(ownerOf: OwnerOf): Starter {
    return new Starter(this.lifecycle, this.document, this.how, ownerOf)
  }

  /** The lifecycle and the id of a run's document. */
  of(run: Pick<RunDocument, '_id'>): StartedDocument {
    return { lifecycle: this.lifecycle.name, id: run._id }
  }

  /** Starts the document of a run, unless an earlier try has. */
  readonly start = async (args: unknown, run: TaskRun<unknown>): Promise<StartedDocument> => {
    const given = await this.document(args, run)
    if (typeof given !== 'object' || given === null || Array.isArray(given))
      throw new InvalidTask(`starts: expected its function to return a document's fields, got ${String(given)}`)
    run.signal.throwIfAborted()
    try {
      await this.owner.insert({ ...given, _id: run.id } as never)
    } catch (error) {
      // It was stored by an earlier try of this run, which ended before that was recorded.
      if (!(error instanceof DocumentExists && error.index === '_id_' && error.id === run.id)) throw error
    }
    return { lifecycle: this.lifecycle.name, id: run.id }
  }

  /** True if the document of a run is there: the replica that inserted it may have died since, or never had the answer. */
  async isThere({ _id }: Pick<RunDocument, '_id'>): Promise<boolean> {
    const { documents } = this.owner
    return (await documents.findOne({ _id: _id as never }, { projection: { _id: 1 } })) !== null
  }

  /** The latest document that is in the way of a run: as many as `maxInstances` of its schedule go on. */
  async openBefore(run: Readonly<RunDocument>, runs: Collection<StoredRun>): Promise<OpenDocument | undefined> {
    const { _id, schedule, maxInstances } = run
    const { until, whileOpen } = this.how
    if (whileOpen === 'start') return undefined
    const { documents, model } = this.owner
    // A removed document exists only until its callbacks were notified.
    const isOpen = { phase: { $nin: [...endsOf(model), removedPhase(model.name)] } }
    // `A` is the character after `@`; the `_id`s of a schedule's documents are in the order of their due times.
    const range = { $gte: `${schedule}@`, $lt: `${schedule}A`, $ne: _id }
    const found = await documents
      .aggregate([
        { $match: { _id: until === 'ended' ? { $in: await othersOpen(run, runs) } : range } },
        { $sort: { _id: -1 } },
        { $limit: MOST_LOOKED_AT },
        { $project: FIELDS },
        { $match: isOpen },
        { $limit: maxInstances },
      ])
      .toArray()
    return found.length < maxInstances ? undefined : this.inTheWay(found[0]!)
  }

  private inTheWay(found: Document): OpenDocument {
    const by = tokenOf(found)?.replace(/#[^#]*$/, '')
    const since: unknown = found['createdAt']
    return {
      overlap: present({ run: String(found['_id']), by, since: since instanceof Date ? since : undefined }),
      text: `${this.nameOf(found['_id'])} goes on (${[found['phase'], by && `on ${by}`].filter(Boolean).join(', ')})`,
    }
  }

  /**
   * The state of a run's document. While the document is open, its end wakes the run: it knows of the run before it is looked at for the
   * last time.
   */
  async look(step: Step<never, RunDocument>, id: string): Promise<StartedState> {
    const before = await this.read(id)
    if (before.kind !== 'open') return before
    const there = await step
      .waitFor({ lifecycle: this.lifecycle.name, id, phases: endsOf(this.lifecycle.model) })
      .catch((error: unknown) => {
        // The lifecycle's documents are in another database: their ends wake no run here.
        if (error instanceof InvalidOutcome) return undefined
        throw error
      })
    if (there?.phase === undefined) return { ...(await this.read(id)), isHere: false } as StartedState
    return there.done ? this.read(id) : before
  }

  private async read(id: string): Promise<StartedState> {
    const { documents, model } = this.owner
    const { progress } = model.settings
    const projection = { ...FIELDS, counters: 1, result: 1, error: 1, [progress]: 1 }
    // Read from a majority: an end that is rolled back ends no run.
    const found = await asReadable((how) =>
      documents.findOne({ _id: id as never }, { projection, ...COMMITTED, ...how }),
    )
    const name = this.nameOf(id)
    if (!found || isRemovedPhase(found['phase'])) return { kind: 'gone', error: runErrorOf(new DocumentRemoved(name)) }
    const phase = String(found['phase'])
    const { succeeded, failed } = endPhases(model)
    const record = Object(found[progress])
    if (succeeded.includes(phase) || failed.includes(phase)) {
      const hasFailed = failed.includes(phase)
      const own = Object(found['error'])
      // The owner's own error may have further fields of unknown size; only these two are kept.
      const said = typeof own.message === 'string' ? { name: own.name, message: own.message } : record.error
      const error = () =>
        said ? withinBounds(said) : runErrorOf(new DocumentFailed(name, phase, lastError(record.history)))
      return {
        kind: 'ended',
        at: record.since instanceof Date ? record.since : undefined,
        error: hasFailed ? error() : null,
        left: { counters: found['counters'], result: found['result'] },
      }
    }
    const why = isParked(found) ? ` is parked in ${phase}: ${record.error?.message ?? '?'}` : ` is in ${phase}`
    return { kind: 'open', isParked: isParked(found) && !hasToken(found), text: `${name}${why}`, isHere: true }
  }

  /**
   * Asks the steps of a run's document and of its children to stop; what no step runs of is parked.
   * @returns true once no step of any of them runs
   */
  async stop(id: string, isParked: boolean, { by, reason }: { by: string; reason: string | null }): Promise<boolean> {
    const verdict = await this.owner.cancel(id, { by, ...(reason !== null && { reason }), evenIdle: true })
    return verdict === 'stopped' || verdict === 'notFound' || (isParked && verdict === 'notHeld')
  }

  private get owner(): OwnerClient {
    return this.ownerOf(this.lifecycle.model) ?? (this.lifecycle.owner() as unknown as OwnerClient)
  }

  private nameOf(id: unknown): string {
    return `${this.lifecycle.name} ${String(id)}`
  }
}

/** The schedule's other runs whose documents may go on. */
async function othersOpen({ _id, schedule }: Readonly<RunDocument>, runs: Collection<StoredRun>): Promise<string[]> {
  // One that has started its document is Queued for a moment where a cancel finds it looking at that.
  const goesOn = [{ phase: 'Running' }, { phase: 'Queued', started: { $exists: true } }]
  const open: object = { $or: goesOn, schedule, _id: { $ne: _id } }
  const found = await onClaimIndex(runs, (hint) => runs.find(open, { projection: { _id: 1 }, hint }).toArray())
  return found.map((one) => one._id)
}

/** The document that a run has started has ended in a phase of failure, without its own error. */
class DocumentFailed extends Error {
  override readonly name = 'DocumentFailed'
  constructor(
    /** Its lifecycle and its `_id`. */
    readonly document: string,
    /** The phase that it has ended in. */
    readonly phase: string,
    /** The last error of its steps; undefined if none is known. */
    readonly lastError: string | undefined,
  ) {
    super(`${document} has ended in ${phase}${lastError === undefined ? '' : `; its last error: ${lastError}`}`)
  }
}

/** The document that a run has started is gone, so its outcome is unknown. */
class DocumentRemoved extends Error {
  override readonly name = 'DocumentRemoved'
  constructor(
    /** Its lifecycle and its `_id`. */
    readonly document: string,
  ) {
    super(`${document} was removed before it had ended`)
  }
}

/** The last error of a document's steps, by its history. */
function lastError(history: unknown): string | undefined {
  const entries = (Array.isArray(history) ? history : []) as Document[]
  const reason: unknown = entries.findLast((entry) => entry?.['outcome'] === 'error')?.['reason']
  return typeof reason === 'string' ? reason : undefined
}
