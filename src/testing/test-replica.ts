import type { MongoClient } from 'mongodb'
import { protocolClient, protocolClientOptions } from '../database/index.js'
import {
  type AnyHandler,
  type Logger,
  Replica,
  type ReplicaOptions,
  type RunnableLifecycle,
  silentLogger,
  standsFor,
} from '../phases/index.js'
import { systemClock } from '../time/index.js'

/** A wrapper that a test puts between the engine and the user's code. */
type WrapHandler = (phase: string, handler: AnyHandler) => AnyHandler

interface TestReplicaOptions {
  readonly uri: string
  readonly database: string
  readonly lifecycles: readonly RunnableLifecycle[]
  readonly name: string
  readonly wrap?: WrapHandler
  readonly logger?: Logger | undefined
  readonly observer?: ReplicaOptions['observer']
}

/**
 * A replica with its own connections and its own clock, so that it can die or stand still while others in the same test continue.
 * It isn't started: tests tick it.
 */
export class TestReplica {
  private standstillMs = 0
  private readonly death = Promise.withResolvers<void>()
  readonly crashed = this.death.promise
  readonly replica: Replica

  private constructor(
    options: TestReplicaOptions,
    private readonly client: MongoClient,
    private readonly renewals: MongoClient,
  ) {
    const { wrap = (_phase, handler) => handler } = options
    this.replica = new Replica({
      db: client.db(options.database),
      renewalDb: renewals.db(options.database),
      lifecycles: options.lifecycles.map((lifecycle) => wrapped(lifecycle, wrap)),
      name: options.name,
      clock: { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + this.standstillMs },
      logger: options.logger ?? silentLogger,
      observer: options.observer,
      grace: '0s',
    })
  }

  static async open(options: TestReplicaOptions): Promise<TestReplica> {
    const settings = { ...protocolClientOptions(30_000), appName: `phaselock-test ${options.name}` }
    const client = await protocolClient(options.uri, settings).connect()
    const renewals = await protocolClient(options.uri, { ...settings, maxPoolSize: 1 }).connect()
    return new TestReplica(options, client, renewals)
  }

  /** Ends the replica as after a kill -9: none of its later commands reaches the database. Its handlers may continue, but no one listens. */
  async crash(): Promise<void> {
    await Promise.all([this.client.close(), this.renewals.close()])
    this.death.resolve()
    // Ends only its timers: its pending writes find closed connections.
    void this.replica.stop().catch(() => {})
  }

  /** Simulates a SIGSTOP of `ms`: no renewals were sent during that time, and its monotonic clock has advanced. */
  async standStill(ms: number): Promise<void> {
    await this.renewals.close()
    this.standstillMs += ms
  }

  async close(): Promise<void> {
    await this.replica.stop()
    await Promise.all([this.client.close(), this.renewals.close()])
  }
}

function wrapped(lifecycle: RunnableLifecycle, wrap: WrapHandler): RunnableLifecycle {
  const handlers = Object.entries(lifecycle.handlers).map(([phase, handler]) => [
    phase,
    standsFor(wrap(phase, handler), () => handler),
  ])
  return {
    model: lifecycle.model,
    handlers: Object.fromEntries(handlers),
    attach: (...given) => lifecycle.attach(...given),
    only: () => lifecycle.only?.(),
    prepare: async (db, indexes) => lifecycle.prepare?.(db, indexes),
    alongside: lifecycle.alongside ?? [],
  }
}
