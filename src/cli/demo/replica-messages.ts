import type { Said } from '../processes/replica-process.js'
import type { Pace } from './observed-handlers.js'

/** A replica process's configuration, sent once over its channel: a connection string may hold a password. */
export interface ReplicaConfig {
  readonly name: string
  readonly uri: string
  readonly database: string
  readonly lockTimeoutMs: number
  readonly concurrency: number
  readonly graceMs: number
  readonly pace: Pace
}

export type ToReplica<Config = object> =
  | { readonly kind: 'configure'; readonly config: Config }
  | { readonly kind: 'pace'; readonly pace: Pick<Pace, 'leastMs' | 'mostMs'> }
  /** The other replicas' processes: the first to find the demo dead ends them too, as a paused one can't end by itself. */
  | { readonly kind: 'siblings'; readonly pids: readonly number[] }

/** What the process of any demo's replica reports to the demo. */
export type DemoNews =
  | Said
  | { readonly kind: 'log'; readonly level: 'warn' | 'error'; readonly message: string }
  /** How many times longer things have taken so far for lack of CPU, once a second. */
  | { readonly kind: 'slowness'; readonly times: number }
  | { readonly kind: 'leaseLost'; readonly how: string }
  /** A document has moved to a phase; sent by replicas of the Kubernetes demo. */
  | { readonly kind: 'moved'; readonly lifecycle: string; readonly id: string; readonly to: string }
