import type { Vector } from '../vectors/index.js'

/**
 * Makes one vector of each text, in the order of the texts. Throw `Unavailable` when the service is away or asks to be left alone: the sync
 * waits and no attempt is used.
 * @param options.signal aborts when the step must end, or when the call has taken longer than its `timeout`
 */
export type Embed = (texts: readonly string[], options: { readonly signal: AbortSignal }) => Promise<readonly Vector[]>

/** A model that makes vectors of texts: a function, and what has to be known of it. `openAiEmbeddings` makes one. */
export interface Embedder {
  readonly embed: Embed
  /** The name of the model, unique among those that you use: vectors are kept and compared under it. */
  readonly model: string
  /** The count of numbers in each vector. */
  readonly dimensions: number
  /**
   * The tokens of a text that the model reads, counted from its start. Longer texts are embedded all the same, counted, and reported once.
   * Default: no limit.
   */
  readonly window?: number | undefined
  /** Counts the tokens of a text, for `window`. Default: estimated as one token for 3.5 characters, as in code. */
  readonly countTokens?: ((text: string) => number) | undefined
  /** The most texts of one call. Default 32. */
  readonly batch?: number | undefined
}

/** The result of `Embeddings.embed`. */
export interface Embedded {
  /** One for each text, in their order. */
  readonly vectors: readonly Float32Array[]
  /** The count of different texts that the model was asked for. */
  readonly embedded: number
  /** The count of different texts whose vectors had been kept. */
  readonly reused: number
  /** The count of different texts that are longer than the model's window. */
  readonly beyondWindow: number
}

/** An embedder whose vectors are kept and whose answers are checked: what a sync works with. `embeddings(embedder, ...)` makes one. */
export interface Embeddings {
  readonly model: string
  readonly dimensions: number
  /**
   * Returns the vectors of texts. The ones that were kept come from there, the others are asked for in batches, and each batch is kept before the
   * next one is asked for, so the next try uses what a crash has left.
   * @throws BadEmbeddings if the model's answer isn't one finite vector of `dimensions` numbers for each text; EmbeddingTimeout;
   *   Unavailable; the signal's reason
   */
  embed(texts: readonly string[], options: { readonly signal: AbortSignal }): Promise<Embedded>
}

/** The place where vectors are kept: `mongoVectors(db)`, `memoryVectors()`, or your own. Keys are hashes of model, dimensions and text. */
export interface KeptVectors {
  /** Returns the vectors that are there. */
  get(keys: readonly string[]): Promise<ReadonlyMap<string, Float32Array>>
  /** Keeps them, for 30 days from now. */
  set(entries: ReadonlyMap<string, Float32Array>): Promise<void>
}
