import type { Document } from 'mongodb'
import { idBytes } from '../documents/values.js'

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
