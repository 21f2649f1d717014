/** The configuration of a replica that syncs repositories, sent once over its channel. */
export interface SyncReplicaConfig {
  readonly uri: string
  readonly database: string
  /** The URL of Qdrant. */
  readonly qdrantUrl: string
  /** The folder of git's caches, which replicas of one machine share. */
  readonly caches: string
  readonly chunks: { readonly characters: number; readonly overlap: number }
  /** The embedder: `wordllama` knows what words mean, `words` hashes them and needs nothing. */
  readonly model: 'wordllama' | 'words'
  /** The milliseconds that each text takes besides, so that there is time for a fault. */
  readonly delayMs: number
}

/** Where replicas count the texts that they embedded, by call. */
export const CALLS = 'demo.calls'
