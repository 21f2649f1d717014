import { idBytes } from '../../lock/index.js'
import type { Count } from './census.js'

/** Documents of one kind: how many there are, and how many of them were read. */
export interface Stratum {
  readonly n: number
  /** True if there are more than `n`. */
  readonly more: boolean
  readonly read: number
}

/** Estimates keep two digits: a sample knows no more. */
const rounded = (n: number): number => (n < 10 ? Math.round(n) : Number(n.toPrecision(2)))

/**
 * A number of documents that have something in common, from documents that were read: each stands for as many of its stratum as were counted
 * for one that was read. It is exact while all documents of each stratum were read.
 */
export class Tally {
  private n = 0
  private about = false
  private more = false

  /** Notes that documents of a stratum were looked through, whatever was found. */
  looked({ n, more, read }: Stratum): void {
    this.about ||= more || read < n
    this.more ||= more
  }

  add(stratum: Stratum): void {
    this.n += stratum.n / Math.max(1, stratum.read)
    this.looked(stratum)
  }

  get size(): number {
    return this.n
  }

  get count(): Count {
    if (!this.about) return { n: Math.round(this.n) }
    return { n: rounded(this.n), ...(this.more && { more: true }), about: true }
  }
}

/** A count of at most `limit`, of one that went one further. */
export const countOf = (n: number, limit: number): Count => (n > limit ? { n: limit, more: true } : { n })

/**
 * The sum of counts.
 * @example sumOf([{ n: 10_000, more: true }, { n: 3 }]) // { n: 10_003, more: true }
 */
export function sumOf(counts: readonly Count[]): Count {
  const [more, about] = [counts.some((one) => one.more), counts.some((one) => one.about)]
  const n = counts.reduce((sum, one) => sum + one.n, 0)
  return { n, ...(more && { more: true }), ...(about && { about: true }) }
}

const MOST_IDS = 3
/** A longer `_id` isn't kept: three of each group have to fit into one document. */
const LONGEST_ID = 200

/** Three `_id`s of a group at most. */
export class SomeIds {
  readonly ids: unknown[] = []

  add(id: unknown): void {
    if (this.ids.length < MOST_IDS && idBytes(id) <= LONGEST_ID) this.ids.push(id)
  }
}
