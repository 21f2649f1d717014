import type { Breakable } from './broken-protocols.js'
import type { Pace } from './observed-handlers.js'
import type { ReplicaNews } from './replica-life.js'

/** What a replica's process is told once, over its channel: a connection string may hold a password. */
export interface ReplicaConfig {
  readonly name: string
  readonly uri: string
  readonly database: string
  readonly lockTimeoutMs: number
  readonly concurrency: number
  readonly graceMs: number
  readonly pace: Pace
  readonly broken: Breakable | null
  /** How far its wall clock runs ahead. */
  readonly clockAheadMs: number
  /** Set where faults come at random: handlers misbehave when a document asks for it. */
  readonly faults?: FaultsConfig | undefined
}

export interface FaultsConfig {
  /** A way to the ledger that no fault disturbs but the end of the database itself. */
  readonly ledgerUri: string
  readonly stepTimeoutMs: number
}

export type ToReplica =
  | { readonly kind: 'configure'; readonly config: ReplicaConfig }
  | { readonly kind: 'pace'; readonly pace: Pick<Pace, 'leastMs' | 'mostMs'> }
  /** The other replicas' processes: whoever finds the demo dead ends them too, as a paused one can't end by itself. */
  | { readonly kind: 'siblings'; readonly pids: readonly number[] }

export interface LeaseLostNews {
  readonly kind: 'leaseLost'
  readonly how: string
  readonly lifecycle: string
  readonly id: string
}

export type FromReplica = ReplicaNews | LeaseLostNews
