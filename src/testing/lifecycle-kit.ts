import { BSON, type Collection, type Db, type Document } from 'mongodb'
import type { DatabaseConnection } from '../database/index.js'
import type { HistoryEntry, RecordedOutcome } from '../lock/index.js'
import { checkOptions, t } from '../options/index.js'
import {
  type AnswerResult,
  type AnyHandler,
  type DuplicateOptions,
  type InsertResult,
  type LifecycleModel,
  type Logger,
  OwnerClient,
  type ReplicaOptions,
  type RunnableLifecycle,
  sharedOptions,
  someLifecycles,
  type TickCounts,
} from '../phases/index.js'
import { type Duration, durationMs, formatMs } from '../time/index.js'
import { backDate } from './back-date.js'
import { connectTestServer, newDatabase } from './test-database.js'
import { TestReplica } from './test-replica.js'

/** Options of a `LifecycleKit`. */
export interface LifecycleKitOptions {
  /** The lifecycles to run, with their handlers. */
  readonly lifecycles: readonly RunnableLifecycle[]
  /** A server to use; else MONGODB_URI; else a database on this machine, in a temporary folder. */
  readonly uri?: string | undefined
  /** Receives the replicas' log lines. Default: they are dropped. */
  readonly logger?: Logger | undefined
  /** Notified of everything that its replicas do. */
  readonly observer?: ReplicaOptions['observer']
}

const kitOptions = t.object({
  lifecycles: someLifecycles,
  uri: t.optional(t.text),
  logger: sharedOptions.logger,
  observer: sharedOptions.observer,
} satisfies t.TypesOf<LifecycleKitOptions>)

/** An entry that a test expects among the newest of a history: only the fields that it names are compared. */
export type ExpectedEntry = Partial<Pick<HistoryEntry, 'from' | 'to' | 'step' | 'reason'>> & {
  outcome?: RecordedOutcome
}

/** A document isn't in the expected phase, or doesn't have the expected history; shows the actual ones. */
export class UnexpectedDocument extends Error {
  override readonly name = 'UnexpectedDocument'
  constructor(
    /** The expectation of the test, in words. */
    readonly expected: string,
    /** The document as it is; null if it doesn't exist. */
    readonly found: object | null,
  ) {
    const text = found ? BSON.EJSON.stringify(found, { relaxed: true }, 2) : 'no such document'
    super(`expected ${expected}, found:\n${text}`)
  }
}

const NEVER = new Promise<never>(() => {})
const MAX_LOOKS = 1_000

/**
 * A database of its own and a replica that works only on request: drives a lifecycle step by step, lets time
 * pass, and kills the replica where it hurts.
 *
 * ```ts
 * const kit = await LifecycleKit.open({ lifecycles: [buckets] })
 * await kit.insert('bucket', { _id: 'b1', phase: 'Creating' })
 * await kit.untilIdle()
 * await kit.advance('2m')
 * await kit.untilIdle()
 * await kit.expectPhase('bucket', 'b1', 'Created')
 * await kit.close()
 * ```
 */
export class LifecycleKit {
  private current: TestReplica | undefined
  private replicas = 0
  private crashAfter: { step: string; crashed: () => void } | undefined

  protected constructor(
    private readonly options: LifecycleKitOptions,
    private readonly connection: DatabaseConnection,
    /** The test's own database, dropped by `close()`. */
    readonly db: Db,
  ) {}

  /** @throws InvalidOptions; NoDatabase and other errors of connecting */
  static async open(given: LifecycleKitOptions): Promise<LifecycleKit> {
    const options = checkOptions('LifecycleKit.open', kitOptions, given)
    const { connection, db } = await LifecycleKit.connect(options.uri)
    return new LifecycleKit(options, connection, db)
  }

  /** @throws NoDatabase and other errors of connecting */
  protected static async connect(uri: string | undefined): Promise<{ connection: DatabaseConnection; db: Db }> {
    const connection = await connectTestServer(uri)
    return { connection, db: newDatabase(connection.client, 'kit') }
  }

  /** Runs one tick and the steps that it began; documents that become due then stay due. */
  async tick(): Promise<TickCounts> {
    const { replica } = await this.replica()
    await replica.prepare()
    const counts = await replica.tick()
    await this.settled(replica.idle())
    return counts
  }

  /** Ticks until nothing is due: all documents sleep, rest, are parked, or are gone. */
  async untilIdle(): Promise<void> {
    await this.settled((await this.replica()).replica.runOnce())
  }

  /** Lets time pass for all documents, by back-dating them. */
  async advance(time: Duration): Promise<void> {
    for (const { model } of this.options.lifecycles) {
      await backDate(this.documents(model.name), durationMs(time), { progress: model.settings.progress })
    }
  }

  /**
   * Ticks and lets time pass until a document is in a phase.
   * @throws UnexpectedDocument if it isn't there after `within` (default: 10 minutes of its time)
   */
  async untilPhase(
    lifecycle: string,
    id: unknown,
    phase: string,
    options: { within?: Duration } = {},
  ): Promise<Document> {
    let leftMs = durationMs(options.within ?? '10m', 'within')
    for (let look = 0; look < MAX_LOOKS; look += 1) {
      await this.untilIdle()
      const found = await this.find(lifecycle, id)
      if (found?.['phase'] === phase) return found
      if (leftMs <= 0) break
      const step = Math.min(leftMs, 10_000)
      await this.advance(`${step}ms`)
      leftMs -= step
    }
    const within = formatMs(durationMs(options.within ?? '10m', 'within'))
    throw new UnexpectedDocument(
      `${lifecycle} ${String(id)} in phase ${phase} within ${within}`,
      await this.find(lifecycle, id),
    )
  }

  /**
   * Makes the replica die right after the step of this name has run (its effects happened, nothing was recorded), as with a
   * kill -9. Resolves once it has died; the lease stays until `advance` lets it expire, and a new replica continues then.
   * The first step of a phase has no name: pass the phase's.
   */
  crash(afterStep: string): Promise<void> {
    return new Promise((resolve) => {
      this.crashAfter = { step: afterStep, crashed: resolve }
    })
  }

  /** Inserts a document unchanged, including its `phase`. @returns its `_id` */
  async insert(lifecycle: string, document: Document): Promise<unknown>
  /** Inserts a document like an owner if one with its `_id` may exist. @returns the outcome */
  async insert(lifecycle: string, document: Document, options: DuplicateOptions): Promise<InsertResult>
  async insert(lifecycle: string, document: Document, options?: DuplicateOptions): Promise<unknown> {
    if (options) return this.owner(lifecycle).insert(document, options)
    const { insertedId } = await this.documents(lifecycle).insertOne({ ...document })
    return insertedId
  }

  /** Answers a document's question, as `tester` unless `by` is given; the next tick runs its handler. */
  answer(lifecycle: string, id: unknown, option: string, by = 'tester'): Promise<AnswerResult> {
    return this.owner(lifecycle).answer(id, { option, by })
  }

  /** Returns the document as it is stored now; null if it doesn't exist. */
  find(lifecycle: string, id: unknown): Promise<Document | null> {
    return this.documents(lifecycle).findOne({ _id: id as never })
  }

  /** Returns its collection, for operations that the kit doesn't offer. */
  documents(lifecycle: string): Collection<Document> {
    return this.db.collection(this.model(lifecycle).collection)
  }

  /** Returns the document's history, oldest first, at most the newest 20 entries. */
  async history(lifecycle: string, id: unknown): Promise<HistoryEntry[]> {
    const found = await this.find(lifecycle, id)
    return found?.[this.model(lifecycle).settings.progress]?.history ?? []
  }

  /** @throws UnexpectedDocument with the document as it is */
  async expectPhase(lifecycle: string, id: unknown, phase: string): Promise<Document> {
    const found = await this.find(lifecycle, id)
    if (found?.['phase'] !== phase) throw new UnexpectedDocument(`${lifecycle} ${String(id)} in phase ${phase}`, found)
    return found
  }

  /** @throws UnexpectedDocument unless the newest entries are these, oldest first */
  async expectHistory(lifecycle: string, id: unknown, expected: readonly ExpectedEntry[]): Promise<void> {
    const newest = (await this.history(lifecycle, id)).slice(-expected.length)
    const matches = (entry: ExpectedEntry, i: number) =>
      Object.entries(entry).every(([field, value]) => newest[i]?.[field as keyof HistoryEntry] === value)
    if (newest.length === expected.length && expected.every(matches)) return
    throw new UnexpectedDocument(`${lifecycle} ${String(id)} with history ${JSON.stringify(expected)}`, newest)
  }

  /** Stops its replicas and drops its database. */
  async close(): Promise<void> {
    await this.current?.close()
    await this.db.dropDatabase()
    await this.connection.close()
  }

  private owner(lifecycle: string): OwnerClient {
    return new OwnerClient(this.db, this.model(lifecycle), { doorbell: 'off' })
  }

  private model(lifecycle: string): LifecycleModel {
    const found = this.options.lifecycles.find(({ model }) => model.name === lifecycle)
    if (found) return found.model
    const known = this.options.lifecycles.map(({ model }) => model.name).join(', ')
    throw new Error(`expected one of the kit's lifecycles (${known}), got '${lifecycle}'`)
  }

  private async replica(): Promise<TestReplica> {
    if (this.current) return this.current
    this.replicas += 1
    this.current = await TestReplica.open({
      uri: this.connection.uri,
      database: this.db.databaseName,
      lifecycles: this.options.lifecycles,
      name: `kit-${this.replicas}`,
      wrap: (phase, handler) => this.dying(phase, handler),
      logger: this.options.logger,
      observer: this.options.observer,
    })
    return this.current
  }

  private dying(phase: string, handler: AnyHandler): AnyHandler {
    return async (document, step) => {
      const name = step.name ?? phase
      const outcome = await handler(document, step)
      if (this.crashAfter?.step !== name) return outcome
      const { crashed } = this.crashAfter
      const dead = this.current
      this.crashAfter = undefined
      this.current = undefined
      await dead?.crash()
      crashed()
      return NEVER
    }
  }

  /** Waits for the work, or for the death of its replica; errors of a dead replica's commands are ignored. */
  private async settled(work: Promise<unknown>): Promise<void> {
    const replica = this.current
    const done = work.catch((error: unknown) => {
      if (this.current === replica) throw error
    })
    await Promise.race([done, replica?.crashed ?? done])
  }
}
