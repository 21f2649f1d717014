import type { Collection, Document, Filter } from 'mongodb'
import { isServerError } from '../../database/index.js'
import {
  afterId,
  type Direction,
  idKey,
  MissingIndex,
  multikeyFields,
  onClaimIndex,
  onIndex,
  readOwnFields,
  valuesAfter,
} from '../../lock/index.js'
import type { ReadAt } from './find.js'
import type { Key, Position } from './list-cursor.js'

/** The most documents that one range of an index is read for; a list whose filter leaves out more of them goes on with another page. */
export const MOST_READ = 10_000

/** How the documents of a lifecycle are listed: a part of an index, in its order, and what is left out of it. */
export interface ListPlan {
  /** The index. Absent: the claim index. */
  readonly index?: Document | undefined
  /**
   * The order in which that index has them: of phases and times, as the claim index, of `_id`, or in none (`ties`): then at most {@link MOST_READ}
   * are put in the order of `_id`.
   */
  readonly order: 'lease' | 'id' | 'ties'
  /** The part of the index. */
  readonly range: Filter<Document>
  /** What else holds of the listed documents, as far as the index doesn't tell; undefined: nothing. */
  readonly rest?: Filter<Document> | undefined
  readonly direction: Direction
  readonly projection: Document | undefined
}

/** A page of one lifecycle. `next`: where the one after it begins; undefined: there is none. */
export interface ListPage {
  readonly rows: readonly ReadAt[]
  readonly next?: Omit<Position, 'lifecycle'> | undefined
  /** True if it has fewer documents than asked for, because {@link MOST_READ} were read in vain. */
  readonly isCut?: boolean
  /** True if more than {@link MOST_READ} documents have the same place in the index: the others of them aren't listed. */
  readonly isCrowded?: boolean
}

const keyOf = ({ phase = null, lockedAt = null, updatedAt = null }: Document): Key => ({ phase, lockedAt, updatedAt })
const keyText = (key: Key): string => [key.phase, key.lockedAt, key.updatedAt].map((value) => idKey(value)).join(' ')
const sameKey = (one: ReadAt, key: Key): boolean => keyText(keyOf(one.document)) === keyText(key)

const TIMES = ['lockedAt', 'updatedAt']
const [FIRST, LAST] = [new Date(-8.64e15), new Date(8.64e15)]
const beyondDates = TIMES.flatMap((field): Filter<Document>[] => [
  { [field]: { $lt: FIRST } },
  { [field]: { $gt: LAST } },
])
const arrays = ['phase', ...TIMES].map((field) => ({ [field]: { $type: 'array' } }) as Filter<Document>)
/** The documents that a cursor can name: an array has several places in an index, and no JavaScript date is as far away as some of BSON's. */
const NAMEABLE: Filter<Document> = { $nor: [...arrays, ...beyondDates] }
/** The look for those left out never takes longer. */
const MOST_MS = 1_000
const TOO_SLOW = 50

/**
 * Reads pages of a list. Invariant: of documents that don't change while the list is read each is on one page, and none is left out. A page therefore
 * never ends within documents of the same key in the index's own order, which no cursor can name: those are put in the order of `_id`.
 */
export class ListReader {
  constructor(
    private readonly collection: Collection,
    private readonly plan: ListPlan,
    /** @internal */
    private readonly mostRead = MOST_READ,
  ) {}

  /** @param most of how many documents; 0: it only finds out whether there are any */
  async page(after: Omit<Position, 'lifecycle'>, most: number): Promise<ListPage> {
    const { order } = this.plan
    if (order === 'ties') return this.tiesOf({}, after.at, most)
    if (order === 'id') return this.byId(after.at, most)
    return this.byLease(after, most)
  }

  /**
   * True if the list leaves out documents because no cursor can name their place. Of dates out of range only `lockedAt` is looked for: of `updatedAt` each
   * key would have to be read. Arrays are looked for only if the claim index has ever held one.
   */
  async leavesOut(): Promise<boolean> {
    if (this.plan.order !== 'lease') return false
    const isMultikey = (await multikeyFields(this.collection).catch(() => [])).length > 0
    // One after the other: of an `$or` within other conditions the server makes no bounds.
    for (const where of [...beyondDates.slice(0, 2), ...(isMultikey ? [{ $or: arrays }] : [])]) {
      const found = await this.run(where, [{ $limit: 1 }], { _id: 1 }, MOST_MS).catch((error: unknown) => {
        // What a second doesn't show may be there.
        if (isServerError(error, TOO_SLOW)) return undefined
        throw error
      })
      if (found === undefined || found.length > 0) return true
    }
    return false
  }

  private async byId(at: Position['at'], most: number): Promise<ListPage> {
    const { direction, rest } = this.plan
    const after = typeof at === 'object' ? afterId(at.id, direction) : {}
    const sort = { _id: direction }
    const found = await this.read(after, sort, most + 1)
    if (found.length > most)
      return { rows: found.slice(0, most), next: { ...NO_KEY, at: lastOf(found.slice(0, most)) ?? at } }
    const end = rest && (await this.lastRead(after, sort))
    return end ? { rows: found, next: { ...NO_KEY, at: lastOf([end]) }, isCut: true } : { rows: found }
  }

  private async byLease({ key, at }: Omit<Position, 'lifecycle'>, most: number): Promise<ListPage> {
    const { direction } = this.plan
    const sort = { phase: direction, lockedAt: direction, updatedAt: direction }
    const rows: ReadAt[] = []
    let isCrowded = false
    if (key && at !== 'past') {
      const ties = await this.tiesOf(key, at, most)
      if (ties.next) return { ...ties, next: { key, at: ties.next.at } }
      rows.push(...ties.rows)
      isCrowded = ties.isCrowded ?? false
    }
    for (const range of key ? rangesAfter(key, direction) : [{}]) {
      const left = most - rows.length
      const found = await this.read(range, sort, left + 1)
      if (found.length > left) {
        const full = await this.upTo(rows, found, left, { key, at })
        return { ...full, isCrowded: isCrowded || full.isCrowded === true }
      }
      const end = this.plan.rest && (await this.lastRead(range, sort))
      if (end) {
        // Which of the documents with that key were read is unknown: the next page begins with them.
        const cut = keyOf(end.document)
        const before = found.filter((one) => !sameKey(one, cut))
        return { rows: [...rows, ...before], next: { key: cut }, isCut: true, isCrowded }
      }
      rows.push(...found)
    }
    return { rows, isCrowded }
  }

  /** The end of a full page. @param found those of the last range, one more than fit */
  private async upTo(
    rows: readonly ReadAt[],
    found: readonly ReadAt[],
    left: number,
    from: Omit<Position, 'lifecycle'>,
  ): Promise<ListPage> {
    const last = left > 0 ? found[left - 1]! : rows.at(-1)
    if (!last) return { rows, next: from }
    const key = keyOf(last.document)
    if (!sameKey(found[left]!, key))
      return { rows: [...rows, ...found.slice(0, left)], next: { key, at: 'past' as const } }
    const before = [...rows, ...found.slice(0, left).filter((one) => !sameKey(one, key))]
    const ties = await this.tiesOf(key, undefined, rows.length + left - before.length)
    return {
      ...{
        rows: [...before, ...ties.rows],
        next: ties.next ? { key, at: ties.next.at } : { key, at: 'past' as const },
      },
      isCrowded: ties.isCrowded ?? false,
    }
  }

  /** The documents of one key, or of all of the range, in the order of `_id`. */
  private async tiesOf(key: Partial<Key>, at: Position['at'], most: number): Promise<ListPage> {
    const { direction } = this.plan
    const where = Object.fromEntries(Object.entries(key)) as Filter<Document>
    const after = typeof at === 'object' ? afterId(at.id, direction) : {}
    const stages = [{ $limit: this.mostRead }, { $match: after }, ...this.restStages(), { $sort: { _id: direction } }]
    const found = await this.run(where, [...stages, { $limit: most + 1 }])
    if (found.length > most) {
      const rows = found.slice(0, most)
      return { rows, next: { ...NO_KEY, at: lastOf(rows) ?? at } }
    }
    const beyond = await this.run(where, [{ $skip: this.mostRead }, { $limit: 1 }], { _id: 1 })
    return { rows: found, isCrowded: beyond.length > 0 }
  }

  private read(where: Filter<Document>, sort: Document, limit: number): Promise<ReadAt[]> {
    const { rest } = this.plan
    const bounded = rest ? [{ $limit: this.mostRead }] : []
    return this.run(where, [{ $sort: sort }, ...bounded, ...this.restStages(), { $limit: limit }])
  }

  /** The last document that {@link read} has looked at, if it hasn't reached the end of its range; or the first after it that a cursor can name. */
  private async lastRead(where: Filter<Document>, sort: Document): Promise<ReadAt | undefined> {
    const fields = { phase: 1, lockedAt: 1, updatedAt: 1 }
    return (
      await this.run(where, [{ $sort: sort }, { $skip: this.mostRead - 1 }, ...this.nameable(), { $limit: 1 }], fields)
    )[0]
  }

  private restStages(): Document[] {
    return [...this.nameable(), ...(this.plan.rest ? [{ $match: this.plan.rest }] : [])]
  }

  private nameable(): Document[] {
    return this.plan.order === 'lease' ? [{ $match: NAMEABLE }] : []
  }

  private run(
    where: Filter<Document>,
    stages: readonly Document[],
    projection = this.plan.projection,
    maxTimeMS?: number,
  ): Promise<ReadAt[]> {
    const { index, range } = this.plan
    const parts = [range, where].filter((part) => Object.keys(part).length > 0)
    const pipeline = [
      { $match: parts.length > 0 ? { $and: parts } : {} },
      ...stages,
      ...(projection ? [{ $project: projection }] : []),
      { $project: { _id: 0, document: '$$ROOT', now: '$$NOW' } },
    ]
    const read = async (hint: Document | undefined) => {
      const reading = { ...(hint && { hint }), ...(maxTimeMS !== undefined && { maxTimeMS }) }
      const rows = await readOwnFields((how) => this.collection.aggregate(pipeline, { ...how, ...reading }).toArray())
      return rows as unknown as ReadAt[]
    }
    if (index) return onIndex(this.collection, index, read)
    return onClaimIndex(this.collection, read).catch(async (error: unknown) => {
      // No replica has prepared it: as long as it is small it is read as it stands.
      const isSmall = error instanceof MissingIndex && (await this.collection.estimatedDocumentCount()) <= this.mostRead
      if (isSmall) return read(undefined)
      throw error
    })
  }
}

const NO_KEY = { key: { phase: null, lockedAt: null, updatedAt: null } }

const lastOf = (rows: readonly ReadAt[]): { readonly id: unknown } | undefined => {
  const last = rows.at(-1)
  return last && { id: last.document['_id'] as unknown }
}

/** The parts of the claim index after a key, in order: those with its phase and `lockedAt`, then with its phase, then of other phases. */
function rangesAfter({ phase, lockedAt, updatedAt }: Key, direction: Direction): Filter<Document>[] {
  return [
    ...valuesAfter('updatedAt', updatedAt, direction).map((later) => ({ phase, lockedAt, ...later })),
    ...valuesAfter('lockedAt', lockedAt, direction).map((later) => ({ phase, ...later })),
    ...valuesAfter('phase', phase, direction),
  ] as Filter<Document>[]
}
