import type { ReplicaNews } from '../replica-life.js'

/** What a replica's process is told once, over its channel: a kubeconfig and a connection string hold secrets. */
export interface KubernetesReplicaConfig {
  readonly name: string
  readonly uri: string
  readonly database: string
  /** The text of one. */
  readonly kubeconfig: string
  /** The region's rule. */
  readonly namespaceRule: string
  readonly lockTimeoutMs: number
  /** Whether it watches what its documents wait for; else it looks again at the end of their pauses. */
  readonly watches: boolean
}

/** A domain has moved to Created. */
export interface CreatedNews {
  readonly kind: 'created'
  readonly id: string
}

export type FromKubernetesReplica = ReplicaNews | CreatedNews
