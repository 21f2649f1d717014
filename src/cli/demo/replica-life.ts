import type { Logger, Replica } from '../../phases/index.js'

/** What the process of any demo's replica tells the demo. */
export type ReplicaNews =
  | { readonly kind: 'started'; readonly identity: string }
  | { readonly kind: 'log'; readonly level: 'warn' | 'error'; readonly message: string }
  | { readonly kind: 'failed'; readonly message: string }

/**
 * The end of the IPC channel in a process that a demo has started for one replica.
 * @typeParam More what its kind of replica tells beside
 */
export class ReplicaLife<More extends object = never> {
  /** Watches over the process from now on: what nobody has caught is told, and ends nothing. */
  constructor() {
    // Ctrl-C reaches all processes of the terminal; the demo decides what becomes of its replicas.
    process.on('SIGINT', () => undefined)
    process.on('unhandledRejection', this.failed)
  }

  readonly tell = (news: ReplicaNews | More): void => {
    if (process.connected) process.send?.(news, () => undefined)
  }

  readonly failed = (error: unknown): void =>
    this.tell({ kind: 'failed', message: error instanceof Error ? (error.stack ?? error.message) : String(error) })

  /** Its warnings and errors go to the demo. */
  readonly logger: Logger = {
    debug: () => undefined,
    info: () => undefined,
    warn: (message) => this.tell({ kind: 'log', level: 'warn', message }),
    error: (message) => this.tell({ kind: 'log', level: 'error', message }),
  }

  /**
   * Starts the replica, which lives until a SIGTERM: then it stops, `close` closes what it has used, and the process ends.
   * @param hurry is called when it begins to stop
   */
  async live(replica: Replica, close: () => Promise<unknown>, hurry: () => void = () => undefined): Promise<void> {
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
    this.tell({ kind: 'started', identity: replica.identity })
  }
}
