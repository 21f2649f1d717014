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

export type FromKubernetesReplica =
  | { readonly kind: 'started'; readonly identity: string }
  /** A domain has moved to Created. */
  | { readonly kind: 'created'; readonly id: string }
  | { readonly kind: 'log'; readonly level: 'warn' | 'error'; readonly message: string }
  | { readonly kind: 'failed'; readonly message: string }
