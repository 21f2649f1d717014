import type { Db, Document, Filter } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import {
  CENSUS_COLLECTION,
  COUNT_LIMIT,
  inPhase,
  literal,
  NEVER_DUE,
  onClaimIndex,
  piecesOf,
  readOwnFields,
  type Terms,
} from '../../lock/index.js'
import type { LifecycleModel } from '../model/model.js'
import type { Census } from './census.js'
import { foundFields } from './findings.js'
import { type Before, beforeIn, beforePipeline } from './store.js'

/** Sets of at most as many documents are read whole, so that what is said of them is exact. */
export const READ_WHOLE = 1_000
const MOST_MS = 10_000
/** All in the first batch, if it fits: a small lifecycle takes one command. */
const BATCH = 100_000

export type PieceName = keyof ReturnType<typeof piecesOf>

/** What the process that takes censuses of a lifecycle remembers from one to the next. */
export interface CensusMemory {
  /** The pieces of phases that had too many documents to be read whole. */
  readonly large: Set<string>
  /** True if the claim index holds no array of phases, as of `checkedAtMs`. */
  isPlain?: boolean
  checkedAtMs?: number
  /** By count, the time when it took too long: it isn't tried again for a while. */
  readonly tooSlow: Map<string, number>
}

/**
 * A memory as a process begins with.
 * @param last an earlier census, by any process: what was large then isn't read in vain
 */
export function newMemory(last?: Pick<Census, 'phases'>): CensusMemory {
  const large = (last?.phases ?? []).flatMap(({ phase, due, held, sleeping, parked }) => [
    ...(due.n > READ_WHOLE ? [keyOf(phase, 'free')] : []),
    ...(held + sleeping.n > READ_WHOLE ? [keyOf(phase, 'later')] : []),
    ...(parked.n > READ_WHOLE ? [keyOf(phase, 'parked')] : []),
  ])
  return { large: new Set(large), tooSlow: new Map() }
}

/** A lifecycle as one command shows it: whole where it is small. */
export interface Survey {
  readonly before: Before
  /** The documents of a piece, if there are few enough. */
  readonly documents: (phase: string, piece: PieceName) => readonly Document[] | undefined
  /** The number of documents of a phase without work, one more than the limit at most. */
  readonly count: (phase: string) => number
  /** True if there are documents in none of the lifecycle's phases. */
  readonly hasOthers: boolean
  readonly neverDue: readonly Document[]
}

interface SurveyRequest {
  readonly db: Db
  readonly model: LifecycleModel
  readonly terms: Terms
  /** The server's time. */
  readonly now: Date
  readonly isPlain: boolean
  readonly memory: CensusMemory
}

export const keyOf = (phase: string, piece: PieceName): string => `${piece} ${phase}`

/**
 * Reads in one command the pieces of a lifecycle's phases that are small, as far as is known, and counts the phases without work. Others are left
 * to commands of their own.
 * @throws the database's own errors, MissingIndex
 */
export async function survey({ db, model, terms, now, isPlain, memory }: SurveyRequest): Promise<Survey> {
  const { progress } = model.settings
  const fields = { ...foundFields(progress) }
  const names = [...model.phases.keys()]
  const pieces = piecesOf(new Date(now.getTime() - terms.lockTimeoutMs))
  const branches: { readonly key: string; readonly coll: string; readonly pipeline: Document[] }[] = []
  const add = (key: string, pipeline: Document[], coll = model.collection) => branches.push({ key, coll, pipeline })
  const reading = (match: Filter<Document>, limit: number) => [
    { $match: match },
    { $limit: limit },
    { $project: fields },
  ]
  for (const { name, kind } of model.phases.values()) {
    const where = isPlain ? { phase: name } : inPhase(name)
    if (kind !== 'working')
      add(`count ${name}`, [{ $match: where }, { $limit: COUNT_LIMIT + 1 }, { $group: { _id: null, n: { $sum: 1 } } }])
    for (const piece of kind === 'working' ? (Object.keys(pieces) as PieceName[]) : (['parked'] as const))
      if (!memory.large.has(keyOf(name, piece)))
        add(keyOf(name, piece), reading({ ...where, ...pieces[piece] }, READ_WHOLE + 1))
  }
  // Each reads a key for each gap between the phases.
  for (const others of [{ phase: { $nin: [...names, null] } }, { phase: null }])
    add('others', [{ $match: others }, { $limit: 1 }, { $project: { _id: 0 } }])
  add('before', beforePipeline(model.name), CENSUS_COLLECTION)
  const labelled = (key: string) => ({ $replaceWith: { key: literal(key), found: '$$ROOT' } })
  // The one that names the claim index: without it none of this may run.
  const first = [...reading({ phase: { $in: names }, ...NEVER_DUE.afterDates }, READ_WHOLE), labelled('neverDue')]
  const unions = branches.map(({ key, coll, pipeline }) => ({
    $unionWith: { coll, pipeline: [...pipeline, labelled(key)] },
  }))
  const collection = protocolCollection<Document>(db, model.collection)
  const rows = await onClaimIndex(collection, (hint) =>
    readOwnFields((how) =>
      collection.aggregate([...first, ...unions], { hint, maxTimeMS: MOST_MS, batchSize: BATCH, ...how }).toArray(),
    ),
  )
  const byKey = Map.groupBy(rows, ({ key }) => key as string)
  const found = (key: string): Document[] => (byKey.get(key) ?? []).map((row) => row['found'])
  return {
    before: beforeIn(found('before'), model.name),
    documents(phase, piece) {
      const key = keyOf(phase, piece)
      if (memory.large.has(key)) return undefined
      const documents = found(key)
      if (documents.length <= READ_WHOLE) return documents
      memory.large.add(key)
      return undefined
    },
    count: (phase) => found(`count ${phase}`)[0]?.['n'] ?? 0,
    hasOthers: byKey.has('others'),
    neverDue: found('neverDue'),
  }
}
