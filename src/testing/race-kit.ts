import type { Db, Document } from 'mongodb'
import type { DatabaseConnection } from '../database/index.js'
import { checkOptions, t } from '../options/index.js'
import type { RunnableLifecycle } from '../phases/index.js'
import { backDate } from './back-date.js'
import { connectTestServer, newDatabase } from './test-database.js'
import { TestReplica } from './test-replica.js'

/** The part of the outside world that the handlers use: each call of one of its methods is an effect, and a place to die at. */
export type Outside = Record<string, (...args: never[]) => unknown>

/** The options of `race`. */
export interface RaceOptions<O extends Outside> {
  /** A server to use; else MONGODB_URI; else a database on this machine, in a temporary folder. */
  readonly uri?: string | undefined
  /** Creates a new outside world for each of the many runs. */
  readonly outside: () => O
  /**
   * Returns the lifecycle with its handlers, using this outside world; called for each replica of each run, with the run's database. If it is
   * `AsyncDisposable`, it is disposed of after its run.
   */
  readonly lifecycle: (outside: O, db: Db) => RacedLifecycle | Promise<RacedLifecycle>
  /** The document that each run begins with. */
  readonly document: Document
  /** Returns the key of a call that must not happen twice; undefined for one that may. Default: the method and its arguments. */
  readonly effectKey?: (method: string, args: readonly unknown[]) => string | undefined
  /** Stops after this many places to die at. Default 200. */
  readonly maxPoints?: number
}

type RacedLifecycle = RunnableLifecycle & Partial<AsyncDisposable>

/** The fault of the first replica: it dies, or stands still for longer than its lease. */
export type Fault = 'crash' | 'pause'

/** An effect that happened more than once in a run. */
export interface DoubledEffect {
  /** The fault of the first replica. */
  readonly fault: Fault
  /** The place where the first replica died or stood still: the nth call, before or after it had its effect. */
  readonly at: string
  /** The method and its arguments, or the key returned by `effectKey`. */
  readonly effect: string
  /** The number of times it happened. */
  readonly times: number
}

/** The result of `race`. */
export interface RaceReport {
  /** The number of runs: one for each fault and each place to die or to stand still at. */
  readonly runs: number
  /** Effects that happened more than once, with the fault that caused it. Empty: the handlers withstand all faults. */
  readonly twice: readonly DoubledEffect[]
  /** Runs after which the document was neither at rest nor gone. */
  readonly unfinished: readonly string[]
}

const raceOptions = t.object({
  uri: t.optional(t.text),
  outside: t.aFunction('a function that makes the outside world, such as () => ({ send: async () => {} })'),
  lifecycle: t.aFunction(
    'a function that makes the lifecycle with its handlers, such as (outside) => order.handle({ ... })',
  ),
  document: t.having([], "the document that each run begins with, such as { phase: 'Creating' }"),
  effectKey: t.optional(t.aFunction()),
  maxPoints: t.optional(t.whole(1, 1_000_000)),
} satisfies t.TypesOf<RaceOptions<Outside>>)

const NEVER = new Promise<never>(() => {})
const LONGER_THAN_A_LEASE = 3

/**
 * Runs a lifecycle on two replicas again and again. In each run the first replica dies (or stands still past its lease, and then continues)
 * at a different place: before or after each call that its handlers make to the outside world. The second takes over. Reports the effects
 * that happened twice, which a handler must make idempotent or guard with the fence.
 * @throws InvalidOptions
 */
export async function race<O extends Outside>(options: RaceOptions<O>): Promise<RaceReport> {
  checkOptions('race', raceOptions, options)
  const connection = await connectTestServer(options.uri)
  try {
    return await raceOn(connection, options)
  } finally {
    await connection.close()
  }
}

async function raceOn<O extends Outside>(connection: DatabaseConnection, options: RaceOptions<O>): Promise<RaceReport> {
  const undisturbed = await new Race(connection, options, undefined).run()
  const points = Math.min(undisturbed.points, options.maxPoints ?? 200)
  const twice: DoubledEffect[] = []
  const unfinished: string[] = undisturbed.finished ? [] : ['without a fault']
  for (const fault of ['crash', 'pause'] as const) {
    for (let point = 1; point <= points; point += 1) {
      const run = await new Race(connection, options, { fault, point }).run()
      if (!run.finished) unfinished.push(`${fault} ${run.at}`)
      for (const [effect, times] of run.counts) if (times > 1) twice.push({ fault, at: run.at, effect, times })
    }
  }
  return { runs: 1 + 2 * points, twice, unfinished }
}

/** The functions that close a run, called last to first. */
type Closing = (() => Promise<unknown>)[]

class Race<O extends Outside> {
  /** The number of times that each effect happened. */
  private readonly counts = new Map<string, number>()
  private points = 0
  private at = 'nowhere'
  private readonly resume = Promise.withResolvers<void>()
  private readonly interrupted = Promise.withResolvers<void>()

  constructor(
    private readonly connection: DatabaseConnection,
    private readonly options: RaceOptions<O>,
    /** Interrupts at the nth place, a place being before or after a call; undefined: never. */
    private readonly interruption: { readonly fault: Fault; readonly point: number } | undefined,
  ) {}

  async run(): Promise<{ points: number; at: string; finished: boolean; counts: Map<string, number> }> {
    const outside = this.options.outside()
    const db = newDatabase(this.connection.client, 'race')
    const closing: Closing = [() => db.dropDatabase()]
    try {
      const { replica: first, model } = await this.replica('first', outside, db, closing)
      const { replica: second } = await this.replica('second', outside, db, closing)
      const documents = db.collection(model.collection)
      const { insertedId } = await documents.insertOne({ ...this.options.document })
      const firstRun = first.replica.runOnce().catch(() => {})
      if (this.interruption) {
        await Promise.race([this.interrupted.promise, firstRun])
        const longMs = model.settings.lockTimeoutMs * LONGER_THAN_A_LEASE
        if (this.interruption.fault === 'crash') await first.crash()
        else await first.standStill(longMs)
        await backDate(documents, longMs, { progress: model.settings.progress })
        await second.replica.runOnce()
        this.resume.resolve()
      }
      if (this.interruption?.fault !== 'crash') await firstRun
      await second.replica.runOnce()
      const left = await documents.findOne({ _id: insertedId })
      const finished = !left || (model.phases.get(left['phase'])?.kind !== 'working' && left['lockedBy'] === undefined)
      return { points: this.points, at: this.at, finished, counts: this.counts }
    } finally {
      for (const close of closing.reverse()) await close()
    }
  }

  private async replica(name: string, outside: O, db: Db, closing: Closing) {
    const lifecycle = await this.options.lifecycle(this.watched(name, outside), db)
    closing.push(async () => lifecycle[Symbol.asyncDispose]?.())
    const { uri } = this.connection
    const replica = await TestReplica.open({ uri, database: db.databaseName, name, lifecycles: [lifecycle] })
    closing.push(() => replica.close().catch(() => {}))
    return { replica, model: lifecycle.model }
  }

  /** Wraps the outside world for one replica: calls are counted, and are places where the first replica may be interrupted. */
  private watched(by: string, outside: O): O {
    return new Proxy(outside, {
      get: (target, property, receiver) => {
        const method = Reflect.get(target, property, receiver)
        if (typeof method !== 'function') return method
        return async (...args: never[]) => {
          await this.place(by, `before ${String(property)}`)
          const result = await method.apply(target, args)
          this.count(String(property), args)
          await this.place(by, `after ${String(property)}`)
          return result
        }
      },
    })
  }

  private async place(by: string, where: string): Promise<void> {
    if (by !== 'first') return
    this.points += 1
    if (this.points !== this.interruption?.point) return
    this.at = `${where} (call ${Math.ceil(this.points / 2)})`
    this.interrupted.resolve()
    await (this.interruption.fault === 'crash' ? NEVER : this.resume.promise)
  }

  private count(method: string, args: readonly unknown[]): void {
    const { effectKey = (name, given) => `${name}(${JSON.stringify(given).slice(1, -1)})` } = this.options
    const effect = effectKey(method, args)
    if (effect !== undefined) this.counts.set(effect, (this.counts.get(effect) ?? 0) + 1)
  }
}
