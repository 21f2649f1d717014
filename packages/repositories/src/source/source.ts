/** The newest commit of a branch. */
export interface Head {
  readonly branch: string
  readonly commit: string
}

/** One entry of a commit's tree, as a listing has it. Paths have `/` and no leading one. */
export interface TreeEntry {
  readonly path: string
  /** The id of its content: the same content has the same blob, wherever and whenever. */
  readonly blob: string
  readonly kind: 'file' | 'symlink' | 'submodule'
  /** The size in bytes; undefined: this listing doesn't say. */
  readonly bytes: number | undefined
}

/** The content of a blob; without `content` it is larger than what was asked for, or the server hasn't got it any more. */
export interface Blob {
  readonly blob: string
  readonly content?: Buffer
  readonly missing?: 'too large' | 'gone'
}

/** The options that each call of a `Source` gets. */
export interface SourceOptions {
  readonly signal: AbortSignal
}

/**
 * The place that a repository is read from. Its methods throw a `SourceProblem` if a person has to act, `Unavailable` of phaselock for
 * another try later, and `CommitGone` if the branch was rewritten in the meantime.
 */
export interface Source {
  /** The URL, for people. */
  readonly url: string
  /** The newest commit of the branch, by one request; without a branch that of the default one. */
  head(branch: string | undefined, options: SourceOptions): Promise<Head>
  /** All files, symlinks and submodules of a commit, in the order of the listing. */
  tree(head: Head, options: SourceOptions): AsyncIterable<TreeEntry>
  /** The contents of these blobs, in the given order, one at a time; content above `maxBytes` isn't read. */
  blobs(
    head: Head,
    blobs: readonly string[],
    options: SourceOptions & { readonly maxBytes: number },
  ): AsyncIterable<Blob>
}
