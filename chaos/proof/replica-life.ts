import type { Said } from '../../dist/cli/processes/replica-process.js'
import { type Logger, Replica, type ReplicaOptions } from '../../dist/phases/index.js'
import { cpuSlowdown } from '../../dist/time/index.js'
import type { Pace } from './observed-handlers.ts'

const SLOWNESS_EVERY_MS = 1_000

export type ToReplica<Config = object> =
  | { readonly kind: 'configure'; readonly config: Config }
  | { readonly kind: 'pace'; readonly pace: Pick<Pace, 'leastMs' | 'mostMs'> }
  /** The other replicas' processes: the first to find the demo dead also ends the others, because a paused one can't end on its own. */
  | { readonly kind: 'siblings'; readonly pids: readonly number[] }

/** The messages that the process of any demo's replica sends to the demo. */
export type DemoNews =
  | Said
  | { readonly kind: 'log'; readonly level: 'warn' | 'error'; readonly message: string }
  /** The factor by which things have taken longer so far for lack of CPU, once a second. */
  | { readonly kind: 'slowness'; readonly times: number }
  | { readonly kind: 'leaseLost'; readonly how: string }
  /** A document has moved to a phase; sent by replicas of the Kubernetes demo. */
  | { readonly kind: 'moved'; readonly lifecycle: string; readonly id: string; readonly to: string }

/** A replica's own side of its process: its incoming and outgoing messages, and its end. */
export class ReplicaLife<Config> {
  private siblings: readonly number[] = []

  /**
   * @param run called with the process's configuration
   * @param heard called with the orders for its kind of replica
   */
  constructor(
    run: (config: Config, life: ReplicaLife<Config>) => Promise<void>,
    received: (order: ToReplica<Config>) => void = () => undefined,
  ) {
    process.on('message', (order: ToReplica<Config>) => {
      if (order.kind === 'siblings') this.siblings = order.pids
      else if (order.kind === 'configure') void run(order.config, this).catch(this.failed)
      else received(order)
    })
    process.on('disconnect', () => this.endWithTheDemo())
    // Ctrl-C reaches all processes of the terminal; the demo decides what happens to its replicas.
    process.on('SIGINT', () => undefined)
    process.on('unhandledRejection', this.failed)
    setInterval(() => this.tell({ kind: 'slowness', times: cpuSlowdown() }), SLOWNESS_EVERY_MS).unref()
  }

  readonly tell = (news: DemoNews): void => {
    if (process.connected) process.send?.(news, () => undefined)
  }

  /** Its warnings and errors go to the demo. */
  readonly logger: Logger = {
    debug: () => undefined,
    info: () => undefined,
    warn: (message) => this.tell({ kind: 'log', level: 'warn', message }),
    error: (message) => this.tell({ kind: 'log', level: 'error', message }),
  }

  /**
   * Starts the replica, which lives until a SIGTERM: then it stops, `close` closes its resources, and the process ends.
   * @param hurry is called when it begins to stop
   */
  async live(
    options: ReplicaOptions,
    close: () => Promise<unknown>,
    hurry: () => void = () => undefined,
  ): Promise<void> {
    const replica = new Replica({ ...options, logger: this.logger })
    const end = async () => {
      hurry()
      await replica.stop()
      await close()
    }
    process.once('SIGTERM', () => {
      end().then(
        () => process.exit(0),
        (error) => {
          this.failed(error)
          process.exit(1)
        },
      )
    })
    await replica.start()
    this.tell({ kind: 'ready', identity: replica.identity })
  }

  private readonly failed = (error: unknown): void => {
    const { name, message, stack = message } = error instanceof Error ? error : new Error(String(error))
    this.tell({ kind: 'failed', name, message: stack, exitCode: 1 })
  }

  /** Ends all processes when the demo has died, so that none is left behind. */
  private endWithTheDemo(): void {
    for (const pid of this.siblings) {
      try {
        process.kill(pid, 'SIGKILL')
      } catch {
        // It has ended already.
      }
    }
    process.exit(1)
  }
}
