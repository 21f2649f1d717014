import { type Duration, Unavailable } from 'phaselock'
import type { CollectionSpec } from './vector-store.js'

/** The server of a vector store is away, overloaded, or asks to be left alone: a step that throws it waits, and no attempt is used. */
export class VectorStoreUnavailable extends Unavailable {
  constructor(
    /** The `kind` of the store. */
    readonly store: string,
    problem: string,
    options: { retryAfter?: Duration; cause?: unknown } = {},
  ) {
    super(`the vector store (${store}) can't be reached: ${problem}`, options)
  }
}

/** A collection that doesn't exist: it was never made, or it was deleted. */
export class CollectionMissing extends Error {
  override readonly name = 'CollectionMissing'
  constructor(
    readonly store: string,
    readonly collection: string,
  ) {
    super(
      `expected the collection '${collection}' in ${store}, but it doesn't exist: create it, or sync its repositories again`,
    )
  }
}

/** A collection of this name was made for another model, dimension or chunker. */
export class CollectionMismatch extends Error {
  override readonly name = 'CollectionMismatch'
  constructor(
    readonly collection: string,
    readonly expected: CollectionSpec,
    readonly found: CollectionSpec,
  ) {
    super(
      `the collection '${collection}' was made for ${shown(found)}, and ${shown(expected)} was asked for: give the repository another collection, or drop this one and sync again`,
    )
  }
}

const shown = ({ model, dimensions, chunker }: CollectionSpec) =>
  `model ${model}, ${dimensions} dimensions, chunker ${chunker}`

/** A collection or table of this name exists, and what Phaselock writes into its metadata isn't there. It is left alone. */
export class NotOurCollection extends Error {
  override readonly name = 'NotOurCollection'
  constructor(
    readonly store: string,
    readonly collection: string,
    /** The finding. */
    readonly found: string,
  ) {
    super(
      `the collection '${collection}' in ${store} wasn't made by phaselock-repositories (${found}): give the repository another collection`,
    )
  }
}

/** The name or the spec of a collection can't be used. */
export class InvalidCollection extends Error {
  override readonly name = 'InvalidCollection'
}

/** A filter can't be used. */
export class InvalidFilter extends Error {
  override readonly name = 'InvalidFilter'
}

/** A vector that the collection can't take. */
export class WrongVector extends Error {
  override readonly name = 'WrongVector'
}

/** The server refuses a call, and would refuse it again: the key, the rights, or a request that it doesn't understand. */
export class VectorStoreRefused extends Error {
  override readonly name = 'VectorStoreRefused'
  constructor(
    readonly store: string,
    problem: string,
    options: { cause?: unknown } = {},
  ) {
    super(`the vector store (${store}) refuses a call: ${problem}`, options)
  }
}
