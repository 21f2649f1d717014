import type { Collection, Document, Filter } from 'mongodb'
import { onClaimIndex } from '../documents/read.js'
import { idBytes, idKey, isReadAs, mayBeReordered } from '../documents/values.js'
import { claimFence, firstFence, leaseMark } from '../lease/lease.js'
import { isDue } from '../lease/lease-state.js'
import {
  countAt,
  enteredAt,
  hasOurShape,
  inProgress,
  literal,
  PARKED_AT,
  progressIfOurs,
  type Terms,
} from '../terms/terms.js'

/**
 * A claim's update: the lease (`lockedAt`, `lockedBy`), a higher fence, one more in `progress.claims`, and the fields that a writer
 * in any language may leave out (`createdAt`, `updatedAt`, `progress.since`). It keeps `progress.endedBy`, which shows the previous
 * holder that its write was recorded.
 *
 * A document whose `progress` is the owner's, or whose `phase` is an array, only gets `lockedAt` = 9999-12-31, so that it costs
 * nothing from then on; the rest of it stays. If the reply has no `lockedBy`, the document is to be reported as broken.
 */
export function claimUpdate(terms: Terms, token: string): Document[] {
  const ours = hasOurShape(terms)
  const now = '$$NOW'
  const onlyOurs = (value: unknown, otherwise: unknown) => ({ $cond: [ours, value, otherwise] })
  const leased = {
    lockedAt: onlyOurs(now, PARKED_AT),
    lockedBy: onlyOurs(literal(token), '$$REMOVE'),
    fence: onlyOurs(claimFence, '$fence'),
    createdAt: onlyOurs({ $ifNull: ['$createdAt', now] }, '$createdAt'),
    updatedAt: onlyOurs({ $ifNull: ['$updatedAt', now] }, '$updatedAt'),
    ...progressIfOurs(terms, claimedProgress(terms)),
  }
  return [{ $set: leased }]
}

/**
 * The claim update of documents that were never claimed, whose `fence` and `progress` are still missing. It sets constants instead
 * of looking at each document's values: 55 us of the server's CPU per document instead of 66 (batches of 500, measured). Only
 * together with the condition {@link neverClaimed}.
 */
export function firstClaimUpdate(terms: Terms, token: string): Document[] {
  const now = '$$NOW'
  const leased = {
    lockedAt: now,
    lockedBy: literal(token),
    fence: firstFence,
    createdAt: { $ifNull: ['$createdAt', now] },
    updatedAt: { $ifNull: ['$updatedAt', now] },
    [terms.progress]: { since: now, claims: 1, attempts: 0, ...leaseMark(terms, now) },
  }
  return [{ $set: leased }]
}

/** Matches documents that hold nothing for a claim to keep but the owner's fields. */
export const neverClaimed = (terms: Terms, phase: string): Filter<Document> => ({
  phase: { $eq: phase, $not: { $type: 'array' } },
  fence: { $exists: false },
  [terms.progress]: { $exists: false },
})

function claimedProgress(terms: Terms): Document {
  const changed = {
    since: enteredAt(terms),
    claims: { $add: [countAt(inProgress(terms, 'claims')), 1] },
    attempts: countAt(inProgress(terms, 'attempts')),
    ...leaseMark(terms, '$$NOW'),
  }
  return { $mergeObjects: [`$${terms.progress}`, changed] }
}

/** The documents that one command claims. */
export interface ClaimCommand {
  readonly ids: readonly unknown[]
  /** True if they look as if they had never been claimed: the cheaper update is then enough. */
  readonly areNew: boolean
}

/** A claim's way of handling its candidates: these commands at the same time, then each of the others separately. */
export interface ClaimCommands {
  readonly together: readonly ClaimCommand[]
  /** Documents that may refuse, or are large. */
  readonly apart: readonly unknown[]
}

/** The most in one command: 1,000 instead of 500 cost 5 % less per document, but then nothing overlaps. */
const MOST_IN_COMMAND = 500
/** Fewer new documents than this are claimed with the others: a separate update costs two commands. */
const LEAST_NEW = 100

/**
 * Makes commands that are sent at the same time, so that the server has something to do while this process reads what it has won,
 * and vice versa: 1,000 in two of 500 instead of 500 in one give 15 % more documents a second (bench/README.md).
 * @param of this process's knowledge of an `_id`: `isSuspect`: it refused a claim before; `wasMissed`: a claim didn't get it, so it
 *   may only look new (an owner's own `progress` isn't among the fields that were read)
 */
export function claimCommands(
  candidates: readonly Document[],
  of: { isSuspect(id: unknown): boolean; wasMissed(id: unknown): boolean },
): ClaimCommands {
  const fresh: unknown[] = []
  const others: unknown[] = []
  const apart: unknown[] = []
  for (const candidate of candidates) {
    const id: unknown = candidate['_id']
    if (of.isSuspect(id) || isLarge(candidate)) apart.push(id)
    else if (!('fence' in candidate) && !of.wasMissed(id)) fresh.push(id)
    else others.push(id)
  }
  if (fresh.length < LEAST_NEW) return { together: inCommands([...others, ...fresh], false), apart }
  return { together: [...inCommands(others, false), ...inCommands(fresh, true)], apart }
}

function inCommands(ids: readonly unknown[], areNew: boolean): ClaimCommand[] {
  const commands = Math.ceil(ids.length / MOST_IN_COMMAND)
  const size = Math.ceil(ids.length / commands)
  return Array.from({ length: commands }, (_, i) => ({ ids: ids.slice(i * size, (i + 1) * size), areNew }))
}

/** The least size of a document that is claimed separately. */
const LARGE_BYTES = 1_000_000
/** The bytes of large documents that one claim takes, but at least one document: 16 MB take a busy server half a second to write, and to read. */
const MOST_LARGE_BYTES = 16_000_000

/** True if a document is large, provided that the look for candidates has read its size. */
const isLarge = ({ bytes }: Document): boolean => typeof bytes === 'number' && bytes >= LARGE_BYTES

/** All small documents, and of the large ones no more than one claim may take. */
export function withFewLarge(documents: readonly Document[]): Document[] {
  let bytes = 0
  return documents.filter((document) => {
    if (!isLarge(document)) return true
    const isFirst = bytes === 0
    bytes += Number(document['bytes'])
    return isFirst || bytes <= MOST_LARGE_BYTES
  })
}

/** The server's code for a document that is too large. */
const TOO_LARGE = 10334

/** The first documents whose `_id`s fit into one command; `left`: the number of those that come after them. */
export function fittingInto(
  documents: readonly Document[],
  mostBytes: number,
): { fitting: Document[]; tooLarge: { document: Document; error: Error }[]; left: number } {
  const fitting: Document[] = []
  const tooLarge: { document: Document; error: Error }[] = []
  let bytes = 0
  for (const [i, document] of documents.entries()) {
    const own = idBytes(document['_id'])
    if (own > mostBytes) {
      const message = `its _id takes ${own} bytes; expected at most ${mostBytes}, because commands have to name it`
      tooLarge.push({ document, error: Object.assign(new Error(message), { code: TOO_LARGE }) })
    } else if (bytes + own > mostBytes) return { fitting, tooLarge, left: documents.length - i }
    else {
      bytes += own
      fitting.push(document)
    }
  }
  return { fitting, tooLarge, left: 0 }
}

const MOST = 1_000

/**
 * Separates documents that others claimed first from those that no holder can name, because the driver doesn't send their `_id` as
 * it is stored: of `{ b: 1, '1': 2 }` JavaScript puts the 1 first. They would come first in every look forever, so they are
 * quarantined (`lockedAt` = 9999-12-31). The server identifies them: one with the same fields in another order is another document,
 * and is left alone if it can be named.
 */
export class MissedIds {
  private readonly missed = new Set<string>()

  constructor(private readonly collection: Collection) {}

  /** True if a recent claim didn't get it. */
  has(id: unknown): boolean {
    return this.missed.size > 0 && this.missed.has(idKey(id))
  }

  /** Takes the candidates that a claim didn't get; returns those among them that were quarantined. */
  async quarantine(terms: Terms, phase: string, ids: readonly unknown[]): Promise<unknown[]> {
    if (this.missed.size > MOST) this.missed.clear()
    const aside: unknown[] = []
    for (const id of ids) {
      this.missed.add(idKey(id))
      if (mayBeReordered(id) && (await this.quarantineReordered(terms, phase, id))) aside.push(id)
    }
    return aside
  }

  private async quarantineReordered(terms: Terms, phase: string, id: unknown): Promise<boolean> {
    const filter: Filter<Document> = { phase, _id: { $type: 'object' }, $expr: { $and: [isDue(terms), isReadAs(id)] } }
    const { matchedCount } = await onClaimIndex(this.collection, (hint) =>
      this.collection.updateMany(filter, { $set: { lockedAt: PARKED_AT } }, { hint }),
    )
    return matchedCount > 0
  }
}
