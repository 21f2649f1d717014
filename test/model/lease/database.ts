import type { Document } from 'mongodb'
import type { Write } from '../captured.js'
import { matches } from '../evaluator/filter.js'
import { compare, type Fields, isObject } from '../evaluator/order.js'
import { updated } from '../evaluator/update.js'

export const TICK_MS = 1_000
const START = Date.UTC(2026, 0, 1)
const FIRST_FENCE = START * 1_000

/** The server's time at a tick. */
export const at = (tick: number): Date => new Date(START + tick * TICK_MS)

/** How many ticks a fence is ahead of the first one: small numbers make small states. */
export const fenceOf = (document: Document): number => Number(document['fence'] ?? FIRST_FENCE) - FIRST_FENCE

/** The fields of the protocol's that decide something in a model; what else a document has makes no two states differ. */
const DECIDING = ['phase', 'state', 'lockedAt', 'lockedBy'] as const
const DECIDING_PROGRESS = ['endedBy', 'resumeAt', 'lockedAt'] as const

function deciding(document: Fields, withFence: boolean): Document {
  const result: Document = { _id: document['_id'] }
  for (const field of DECIDING) if (document[field] !== undefined) result[field] = document[field]
  if (withFence && document['fence'] !== undefined) result['fence'] = Number(document['fence'])
  const progress = (document['progress'] ?? {}) as Document
  const kept: Document = {}
  for (const field of DECIDING_PROGRESS) if (progress[field] !== undefined) kept[field] = progress[field]
  if (Object.keys(kept).length > 0) result['progress'] = kept
  return result
}

/** A time before or after, free and parked documents apart. */
const shifted = (value: unknown, ticks: number): unknown =>
  value instanceof Date && value > at(-FAR) && value < at(FAR) ? new Date(value.getTime() + ticks * TICK_MS) : value

/** Further off nothing differs any more. */
const FAR = 1_000
/** What is older than this is as if it were this old: longer than a lease and any command that waits. */
const OLD = 6

function earlier(document: Fields): Fields {
  const moved = Object.fromEntries(Object.entries(document).map(([key, value]) => [key, shifted(value, -1)])) as Fields
  if (isObject(document['progress'])) moved['progress'] = earlier(document['progress'])
  return moved
}

/** What is older than can be told apart is of one age; only whether a lease's mark is still its `lockedAt` counts then. */
function bounded(document: Fields): Fields {
  const { progress, lockedAt } = document
  const isOld = (value: unknown): value is Date => value instanceof Date && value > at(-FAR) && value < at(-OLD)
  const result = isOld(lockedAt) ? { ...document, lockedAt: at(-OLD) } : document
  if (!isObject(progress)) return result
  const { lockedAt: mark, resumeAt } = progress
  const more: Fields = {}
  if (isOld(mark)) more['lockedAt'] = compare(mark, lockedAt) === 0 ? at(-OLD) : at(-OLD - 1)
  if (isOld(resumeAt)) more['resumeAt'] = at(-OLD - 1)
  return { ...result, progress: { ...progress, ...more } }
}

/** The server, as far as one document goes: each write is atomic, and judged by the time at which its command began. */
export class ModelDatabase {
  private readonly known = new Map<string, Document | null>()
  private readonly documents = new Map<string, Document>()
  private readonly numbers = new WeakMap<Document, number>()

  constructor(private readonly withFence: boolean) {}

  /**
   * @param name tells this write from all others of the model
   * @returns the document after it, null: it matched nothing
   */
  execute(name: string, write: () => Write, document: Document | null, tick: number): Document | null {
    if (!document) return null
    return this.remembered(`${name} ${tick} ${this.numberOf(document)}`, () => {
      const { filter, update } = write()
      return matches(filter, document, at(tick)) ? updated(update as Document[], document, at(tick)) : null
    })
  }

  matches(name: string, filter: () => Document, document: Document | null, tick: number): boolean {
    return this.execute(name, () => ({ filter: filter(), update: [] }), document, tick) !== null
  }

  /** The same document a tick later, where now is always the same moment. */
  aTickLater(document: Document | null): Document | null {
    return document && this.remembered(`later ${this.numberOf(document)}`, () => bounded(earlier(document)))
  }

  /** Equal for equal documents. */
  numberOf(document: Document): number {
    const known = this.numbers.get(document)
    return known ?? this.numbers.get(this.one(document))!
  }

  private remembered(key: string, make: () => Document | null): Document | null {
    const known = this.known.get(key)
    if (known !== undefined) return known
    const made = make()
    const document = made && this.one(deciding(made, this.withFence))
    this.known.set(key, document)
    return document
  }

  /** The same object for equal documents. */
  one(document: Document): Document {
    const key = JSON.stringify(document)
    const known = this.documents.get(key)
    if (known) return known
    this.documents.set(key, document)
    this.numbers.set(document, this.documents.size)
    return document
  }
}
