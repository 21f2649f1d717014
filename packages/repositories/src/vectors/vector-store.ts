/** The numbers of one text. Stores keep them as 32-bit floats. */
export type Vector = ArrayLike<number>

/** The purpose of a collection, the same for all of its points: vectors of two models can't be compared. */
export interface CollectionSpec {
  /** The name of the embedding model, as the embedder gives it. */
  readonly model: string
  /** The count of numbers in each vector. */
  readonly dimensions: number
  /** The name and settings of the chunker, such as `lines:7000/1500`. */
  readonly chunker: string
}

/** A chunk of a file with its vector. */
export interface Point extends PointPayload {
  /** From `pointId`: the same chunk of the same file has the same id, so a repeated step overwrites. */
  readonly id: string
  readonly vector: Vector
}

/** The fields that a store keeps beside a vector. `fence` isn't here: `upsert` sets it for all of its points. */
export interface PointPayload {
  /** The id of the repository. */
  readonly repository: string
  /** The path of the file, with `/` between its parts. */
  readonly path: string
  /** The id of the file's content in git. */
  readonly blob: string
  /** The hash of the chunk's text, the one in the point's id. */
  readonly hash: string
  /** The first line of the chunk, from 1. */
  readonly fromLine: number
  /** The last line of the chunk. */
  readonly toLine: number
  readonly text: string
}

/** A point without its vector. */
export interface StoredPoint extends PointPayload {
  readonly id: string
  /** The fence of the sync that wrote it last. */
  readonly fence: number
}

/** A point that a query found. */
export interface Hit extends StoredPoint {
  /** The cosine similarity, from -1 to 1. */
  readonly score: number
}

/** A choice of points: all that is given must be true. An empty list of `paths` or `ids` matches nothing. */
export interface PointFilter {
  readonly repository?: string | undefined
  /** One of these paths, each whole. */
  readonly paths?: readonly string[] | undefined
  /** A file or a folder with all that is below it. */
  readonly under?: string | undefined
  readonly ids?: readonly string[] | undefined
  /** None of these. */
  readonly exceptIds?: readonly string[] | undefined
}

/** Options of each call. */
export interface CallOptions {
  /** Ends the call: it rejects with the signal's reason. The server may have done its work all the same. */
  readonly signal?: AbortSignal | undefined
}

/** Options of a call that writes. */
export interface PointWriteOptions extends CallOptions {
  /**
   * The fence of the sync that writes. A point that a later sync wrote (`fence` above this one) isn't changed and isn't deleted. A point that is
   * missing is added whatever the fence: what a late writer adds anew, Checking removes.
   */
  readonly fence: number
}

/**
 * The port to a vector database. One collection may hold the points of several repositories. Each method throws `VectorStoreUnavailable`
 * if the server is away, and all but `describe` and `create` throw `CollectionMissing` if the collection doesn't exist.
 */
export interface VectorStore {
  /** The database, for messages: `qdrant`, `pgvector`, `memory`, or a name of your own. */
  readonly kind: string
  /** Returns the spec that the collection was made with; undefined if it doesn't exist. @throws NotOurCollection if another program made it */
  describe(collection: string, options?: CallOptions): Promise<CollectionSpec | undefined>
  /**
   * Makes the collection, with `spec` in its metadata. Does nothing if it exists with the same one, so two callers may race.
   * @throws CollectionMismatch if it exists with another one, NotOurCollection if another program made it, InvalidCollection
   */
  create(collection: string, spec: CollectionSpec, options?: CallOptions): Promise<void>
  /** Deletes the collection with all its points. Does nothing if it doesn't exist. */
  drop(collection: string, options?: CallOptions): Promise<void>
  /**
   * Writes points, each one whole, and returns when they can be found. Either all that the fence allows are written, or it throws.
   * @throws WrongVector, before anything is written, if a vector has another dimension or a number that isn't finite
   */
  upsert(collection: string, points: readonly Point[], options: PointWriteOptions): Promise<void>
  /** Deletes the points that match. @throws InvalidFilter if the filter is empty: `drop` deletes all */
  delete(collection: string, filter: PointFilter, options: PointWriteOptions): Promise<void>
  /** Returns the points nearest to `vector`, best first. @param options.limit default 10, at most 1,000 @throws WrongVector */
  query(
    collection: string,
    vector: Vector,
    options?: CallOptions & { readonly limit?: number | undefined; readonly filter?: PointFilter | undefined },
  ): Promise<readonly Hit[]>
  /** Returns the exact number of points that match. */
  count(collection: string, filter?: PointFilter, options?: CallOptions): Promise<number>
  /**
   * Returns the points that match, a page at a time in the order of their ids. A page may hold fewer than `limit`, only the last has no `next`.
   * @param options.after the `next` of the page before @param options.limit default 1,000, at most 10,000
   */
  scroll(
    collection: string,
    filter?: PointFilter,
    options?: CallOptions & { readonly after?: string | undefined; readonly limit?: number | undefined },
  ): Promise<{ readonly points: readonly StoredPoint[]; readonly next: string | undefined }>
}
