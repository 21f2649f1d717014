import type { Collection, Document, Filter } from 'mongodb'
import { AS_IT_STANDS, onIndex, orderIndex, readOwnFields } from '../documents/read.js'
import { idKey, isNumber, isValid, type OddField, typeName } from '../documents/values.js'
import { dueIn, notAfter } from '../lease/lease-state.js'
import type { Turn } from '../select/phase-memory.js'
import type { CandidateGroup, CandidateList } from '../select/selection.js'
import type { Terms } from '../terms/terms.js'
import {
  byKind,
  type CandidateRequest,
  candidateCursor,
  candidateFields,
  divided,
  lookForCandidates,
  type Seen,
} from './candidates.js'

/** The order of due documents beyond "the longest untouched first". Absent: no other. */
export interface ClaimOrder {
  /** The field that holds a document's rank: 'low', 'normal' (as where it is missing), 'high' or 'urgent'. */
  readonly priorityBy?: string | undefined
  /** The field whose values take turns in claims. */
  readonly fairBy?: string | undefined
}

/**
 * The ranks of a document's priority, lowest first, with the least share of a claim's places that each gets while it has documents
 * due. The places that the others leave go to the highest.
 */
export const RANKS = { low: 1 / 16, normal: 1 / 8, high: 1 / 4, urgent: 1 / 2 } as const
/** The share of documents whose priority is no rank, among the oldest that are due: no index finds those behind others. */
export const UNRANKED = 1 / 16
/** The part of a claim that is taken in turns. The rest goes by age or rank, so that no value is passed over forever. */
export const FAIR = 7 / 8
export const FAIR_BESIDE_RANKS = 1 / 2
/** The number of values that get a turn in one claim. */
const MOST_TURNS = 16

/** The indexes that an order needs besides the claim index. */
export const orderIndexes = ({ priorityBy, fairBy }: ClaimOrder): Document[] =>
  [...new Set([priorityBy, fairBy])].flatMap((field) => (field === undefined ? [] : [orderIndex(field)]))

/**
 * Finds candidates in the order that a lifecycle declares. If the look by age has seen all that is due, that is put in order.
 * Otherwise each rank and each of the next values is read separately, from its own part of an index, however many documents of
 * others are before it.
 *
 * Bounds, of a claim's places and on average: of documents that are due a rank gets at least its share in {@link RANKS}. Of the
 * values that have due documents, the next {@link MOST_TURNS} get equal parts of {@link FAIR}, in turn, so none waits for more than
 * (values / 16) claims.
 */
export class OrderedLook {
  constructor(
    private readonly collection: Collection,
    private readonly order: ClaimOrder,
  ) {}

  async look(terms: Terms, request: CandidateRequest): Promise<Seen> {
    const { priorityBy, fairBy } = this.order
    const fields = [priorityBy, fairBy].flatMap((field) => field ?? [])
    const asked = { ...request, also: Object.fromEntries(fields.map((field) => [field, 1])) }
    const seen = await lookForCandidates(this.collection, terms, asked)
    const [byRank, inTurn] = await Promise.all([
      priorityBy === undefined ? undefined : this.ranks(terms, asked, seen, priorityBy),
      fairBy === undefined || !seen.more ? [] : this.inTurn(terms, asked, fairBy),
    ])
    return { ...seen, lists: byTurns(byRank ?? seen.lists, inTurn, fairBy, byRank ? FAIR_BESIDE_RANKS : FAIR) }
  }

  /** Makes a group for each rank, the lowest first; before them those with none of these ranks. */
  private async ranks(terms: Terms, request: CandidateRequest, seen: Seen, field: string): Promise<CandidateList[]> {
    const unranked: CandidateGroup = { least: UNRANKED }
    const lists = inGroup(seen.lists, unranked, (document) => rankOf(document[field]) === undefined)
    const ranks = Object.entries(RANKS).map(async ([rank, least]) => {
      const group = { least }
      if (!seen.more) return inGroup(seen.lists, group, (document) => rankOf(document[field]) === rank)
      const values = rank === 'normal' ? [rank, null] : [rank]
      const [fresh, waiting] = await Promise.all(
        (['fresh', 'waiting'] as const).map(async (range) => {
          const found = await Promise.all(values.map((value) => this.range(terms, request, range, { [field]: value })))
          // An array is found by each of its elements, and has no rank.
          return found.flat().filter((document) => rankOf(document[field]) === rank)
        }),
      )
      const { released, woken } = divided(waiting!)
      return byKind(fresh!, released, woken, group)
    })
    return [...lists, ...(await Promise.all(ranks)).flat()]
  }

  private range(
    terms: Terms,
    request: CandidateRequest,
    range: 'fresh' | 'waiting',
    at: Document,
  ): Promise<Document[]> {
    const { memory, extent, dueBound, sized = false, also = {} } = request
    const { wanted, spare, passed, without, newestFirst } = extent
    const reading = { limit: wanted + spare + passed, dueBound, without, newestFirst, sized, also, at }
    return onIndex(this.collection, orderIndex(Object.keys(at)[0]!), (index) =>
      readOwnFields((how) =>
        candidateCursor(this.collection, terms, memory.phase, range, { ...reading, index, ...how }).toArray(),
      ),
    )
  }

  /** Reads documents of the next values of a field that have due documents, an equal part of the wanted number from each. */
  private inTurn(terms: Terms, request: CandidateRequest, field: string): Promise<Document[]> {
    const { memory, extent, dueBound, sized, also } = request
    const { wanted, spare, passed, without } = extent
    const full = (request.full ?? []).filter(hasTurns)
    return takeTurns(field, memory.turn, wanted + spare + passed, (values, limit) =>
      onIndex(this.collection, orderIndex(field), (hint) => {
        const others = [
          ...(without.length > 0 ? [{ _id: { $nin: without as never[] } }] : []),
          ...(full.length > 0 ? [{ [field]: { $nin: full as never[] } }] : []),
        ]
        // An array is found by each of its elements, and none of them leads to the next value.
        const isNoArray = { [field]: { $not: { $type: 'array' as const } } }
        const filter = { $and: [dueIn(terms, memory.phase), values, isNoArray, notAfter(dueBound), ...others] }
        const projection = candidateFields(terms, { sized, also })
        return readOwnFields((how) =>
          this.collection
            .find(filter, { ...AS_IT_STANDS, ...how, projection, hint, limit, batchSize: limit + 1 })
            .toArray(),
        )
      }),
    )
  }
}

/** The types of values that take turns, besides null, in the order of the server's indexes: a comparison finds only values of its own type. */
const KINDS: readonly { readonly type: string; readonly has: (value: unknown) => boolean }[] = [
  { type: 'number', has: isNumber },
  { type: 'string', has: (value) => typeof value === 'string' },
  { type: 'binData', has: (value) => bsonType(value) === 'Binary' }, // UUIDs
  { type: 'objectId', has: (value) => bsonType(value) === 'ObjectId' },
  { type: 'bool', has: (value) => typeof value === 'boolean' },
  { type: 'date', has: (value) => value instanceof Date && isValid(value) },
]

const bsonType = (value: unknown): string | undefined => (value as { _bsontype?: string } | undefined)?._bsontype

/**
 * True if a value takes turns. Others mustn't be named in a query: a regular expression would stand for all strings that it
 * matches, and an object whose key begins with $ is refused.
 */
const hasTurns = (value: unknown): boolean => value === null || KINDS.some(({ has }) => has(value))

/**
 * Goes round the values of a field that have documents due, from where the last claim ended: null (also where it is missing), then
 * all of {@link KINDS}. A value of another type gets no turn, nor does an array. Each read finds the next value by skipping in the
 * index: a key or two for a value whose documents all sleep.
 */
async function takeTurns(
  field: string,
  turn: Turn,
  wanted: number,
  read: (values: Filter<Document>, limit: number) => Promise<Document[]>,
): Promise<Document[]> {
  const turns = Math.min(MOST_TURNS, wanted)
  const each = Math.ceil(wanted / Math.min(turns, turn.sharers ?? MOST_TURNS))
  const found = new Map<string, Document[]>()
  // Once round: from where it is to the end, then from the beginning on.
  for (let ends = turn.after ? 2 : 1; found.size < turns && ends > 0; ) {
    const { values, isToTheEnd } = nextValues(turn)
    const documents = await read({ [field]: values } as Filter<Document>, each)
    const keys = Map.groupBy(documents, (document) => idKey(document[field] ?? null))
    const isRound = [...keys.keys()].some((key) => found.has(key))
    const others = [...keys].filter(([key]) => !found.has(key))
    const room = turns - found.size
    for (const [key, own] of others.slice(0, room)) {
      found.set(key, own)
      turn.after = { value: own[0]![field] ?? null }
      turn.isKindOver = false
    }
    if (isRound || others.length > room) break // the next claim goes on after the last that was taken
    if (documents.length === each) continue
    if (isToTheEnd) {
      turn.after = undefined
      ends -= 1
    } else if (turn.after) turn.isKindOver = true
    else turn.after = { value: null }
  }
  turn.sharers = Math.max(1, found.size)
  return [...found.values()].flat()
}

/** Returns the values to be read next, and true if none come after them. */
function nextValues({ after, isKindOver }: Turn): { readonly values: object; readonly isToTheEnd: boolean } {
  const value = after?.value
  if (value === undefined) return { values: { $eq: null }, isToTheEnd: false }
  const later = KINDS.slice(KINDS.findIndex(({ has }) => has(value)) + 1)
  if (value === null || (isKindOver && later.length > 0))
    return { values: { $type: later.map(({ type }) => type) }, isToTheEnd: true }
  // No number is greater than NaN, which sorts before all of them.
  const isFirst = isNumber(value) && Number.isNaN(Number(value))
  const values = isFirst ? { $gte: Number.NEGATIVE_INFINITY } : { $gt: value }
  return { values, isToTheEnd: later.length === 0 }
}

/**
 * Makes values take turns in each list, and gives those read for their turns their part of the places. They come before the others,
 * because the last of those, the highest rank, gets the rest.
 */
export function byTurns(
  lists: readonly CandidateList[],
  inTurn: readonly Document[],
  turnsBy: string | undefined,
  fair: number,
): readonly CandidateList[] {
  if (turnsBy === undefined) return lists
  const all = lists.map((list) => ({ ...list, turnsBy }))
  if (inTurn.length === 0) return all
  return [{ least: 0, documents: inTurn, turnsBy, group: { least: fair } }, ...scaled(all, 1 - fair)]
}

/** The same lists with fewer places: all of them together get this share. */
function scaled(lists: readonly CandidateList[], share: number): CandidateList[] {
  const groups = new Map<CandidateGroup | undefined, CandidateGroup>()
  return lists.map((list) => {
    const group = groups.get(list.group) ?? { least: (list.group?.least ?? 1) * share }
    groups.set(list.group, group)
    return { ...list, group }
  })
}

const inGroup = (lists: readonly CandidateList[], group: CandidateGroup, isIn: (document: Document) => boolean) =>
  lists.map((list) => ({ ...list, documents: list.documents.filter(isIn), group }))

const rankOf = (value: unknown): string | undefined =>
  value === undefined || value === null
    ? 'normal'
    : typeof value === 'string' && Object.hasOwn(RANKS, value)
      ? value
      : undefined

/** Reports a priority that is no rank: the document counts by age, like those of the lowest rank. */
export function oddRank(document: Document, priorityBy: string): OddField[] {
  const value: unknown = document[priorityBy]
  if (rankOf(value) !== undefined) return []
  const found = typeof value === 'string' ? `none of ${Object.keys(RANKS).reverse().join(', ')}` : typeName(value)
  return [{ field: 'priority', found, isMended: false }]
}
