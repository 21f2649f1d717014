import { whyNotClaimable } from '../lock/index.js'
import { type DocumentRef, type Found, findDocument } from './find.js'
import { modelOf, type System, termsInForce } from './system.js'

/** One document, as a person wants to see it. */
export interface Shown extends Found {
  /** Why the server lets no replica write it, though it is due; undefined: it does. */
  readonly refusal: string | undefined
  /** Those of other lifecycles with the same `_id`. */
  readonly also: readonly Found[]
}

/**
 * One document: what it waits for in one sentence, its fields and its history.
 * @example (await showDocument(system, { id: 'shop' })).explanation // Sleeps until 2026-01-01T10:00:05.000Z (in 3 s), ...
 * @throws NotFound, UsageError
 */
export async function showDocument(system: System, ref: DocumentRef): Promise<Shown> {
  const found = await findDocument(system, ref)
  return { ...found, refusal: found.condition.kind === 'due' ? await refusalOf(system, found) : undefined }
}

async function refusalOf(system: System, { lifecycle, document }: Found): Promise<string | undefined> {
  const model = modelOf(system, lifecycle)
  const terms = (await termsInForce(system.db, [model]))(model)
  return whyNotClaimable(system.db, model.collection, terms, document['_id'])
}
