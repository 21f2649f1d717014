import type { Document } from 'mongodb'
import { idBytes } from '../documents/id-key.js'

/** Documents that one command claims. */
export interface ClaimCommand {
  readonly ids: readonly unknown[]
  /** Whether they look as if nobody had claimed them before: the cheaper update does for them. */
  readonly areNew: boolean
}

/** How a claim goes about its candidates: the parts at once, then each suspect for itself. */
export interface ClaimCommands {
  readonly parts: readonly ClaimCommand[]
  readonly suspects: readonly unknown[]
}

/** The most in one command: with 1,000 instead of 500 it costs 5 % less a document, and nothing of it overlaps with anything. */
const MOST_IN_PART = 500
/** Fewer new documents than this are claimed with the others: a part of their own costs two commands. */
const LEAST_NEW = 100

/**
 * Parts that are claimed at once, so that the server has something to do while this process reads what it has won, and the other
 * way round: 1,000 in two parts instead of 500 in one give 15 % more documents a second (bench/README.md).
 * @param of what this process knows of an `_id`: `isSuspect`: it refused a claim before; `wasMissed`: a claim didn't get it, so the
 *   look of a new document may deceive (an owner's own `progress` isn't among what was read)
 */
export function claimCommands(
  candidates: readonly Document[],
  of: { isSuspect(id: unknown): boolean; wasMissed(id: unknown): boolean },
): ClaimCommands {
  const fresh: unknown[] = []
  const others: unknown[] = []
  const suspects: unknown[] = []
  for (const candidate of candidates) {
    const id: unknown = candidate['_id']
    if (of.isSuspect(id)) suspects.push(id)
    else if (!('fence' in candidate) && !of.wasMissed(id)) fresh.push(id)
    else others.push(id)
  }
  const separate = fresh.length >= LEAST_NEW
  return {
    parts: separate ? [...inParts(others, false), ...inParts(fresh, true)] : inParts([...others, ...fresh], false),
    suspects,
  }
}

function inParts(ids: readonly unknown[], areNew: boolean): ClaimCommand[] {
  const parts = Math.ceil(ids.length / MOST_IN_PART)
  const size = Math.ceil(ids.length / parts)
  return Array.from({ length: parts }, (_, i) => ({ ids: ids.slice(i * size, (i + 1) * size), areNew }))
}

/** A document of so many bytes is claimed for itself. */
const LARGE_BYTES = 1_000_000
/** And so many bytes of them in one claim, one document at least: 16 MB take a busy server half a second to write, and to read. */
const MOST_LARGE_BYTES = 16_000_000

/** How large a document is, where the look for candidates has read that. */
export const isLarge = ({ bytes }: Document): boolean => typeof bytes === 'number' && bytes >= LARGE_BYTES

/** All small documents, and of the large ones as many as one claim may take. */
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

interface Fitting {
  readonly some: Document[]
  readonly tooLarge: { readonly document: Document; readonly error: Error }[]
  /** How many come after those. */
  readonly left: number
}

/** As many documents, the first ones, as have `_id`s that one command can name. */
export function fittingInto(documents: readonly Document[], mostBytes: number): Fitting {
  const fitting = { some: [] as Document[], tooLarge: [] as { document: Document; error: Error }[] }
  let bytes = 0
  for (const [i, document] of documents.entries()) {
    const own = idBytes(document['_id'])
    if (own > mostBytes) {
      const message = `its _id takes ${own} bytes, expected ${mostBytes} at most: commands have to name it`
      fitting.tooLarge.push({ document, error: Object.assign(new Error(message), { code: TOO_LARGE }) })
    } else if (bytes + own > mostBytes) return { ...fitting, left: documents.length - i }
    else {
      bytes += own
      fitting.some.push(document)
    }
  }
  return { ...fitting, left: 0 }
}
