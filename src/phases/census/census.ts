import type { Collection, Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { CENSUS_COLLECTION, readOwnFields } from '../../lock/index.js'
import { isWholeCensus } from './is-census.js'

/** A number of documents, with what is known of it. Without `more` and `about` it is exact. */
export interface Count {
  readonly n: number
  /** True if there are at least `n`. */
  readonly more?: true
  /** True if `n` is estimated from a sample. */
  readonly about?: true
}

/** The documents of one phase. */
export interface PhaseCensus {
  /**
   * The phase; it may be one that the lifecycle doesn't have. `(an array)`: documents whose `phase` is one, each counted once. `(missing)`:
   * without one, or null. `(not a string)`: of another type. `(removed)`: deleted once their callbacks are delivered.
   */
  readonly phase: string
  readonly kind: 'working' | 'resting' | 'final' | 'removed' | 'unknown'
  /** True if it is paused, alone or with all of its lifecycle. */
  readonly paused: boolean
  readonly documents: Count
  /** The documents of a working phase that wait for a replica. */
  readonly due: Count
  /** The documents that live replicas hold, by their last beats. */
  readonly held: number
  readonly sleeping: Count
  /** The sleeping ones that wait for an answer. */
  readonly asking: Count
  readonly parked: Count
  /** The ones whose last step ended with an error, and that will be tried again. */
  readonly failing: Count
  /** The sleeping ones that wait for something that their handler named. */
  readonly waiting: Count
  /** When the oldest due document came due; null: none is due, or the phase is paused. */
  readonly oldestDueAt: Date | null
  /** The due documents that don't record when they came due; at most 1,000. */
  readonly undated: number
}

/** Documents with the same trouble. */
export interface TroubleGroup {
  /** The fingerprint of the error, or of the reason to park: 12 hex digits. */
  readonly cause: string
  /** The message without its values. */
  readonly text: string
  readonly phases: readonly string[]
  readonly documents: Count
  /** The time of the oldest and of the newest step that ended so, among those that were read. */
  readonly oldest: Date
  readonly newest: Date
  /** When a census first found it; kept from one to the next. */
  readonly firstSeen: Date
  /** Three of its documents at most. */
  readonly ids: readonly unknown[]
}

/** A cause that an earlier census found, and that is gone. */
export interface GoneCause {
  readonly cause: string
  readonly firstSeen: Date
  readonly lastSeen: Date
}

/** What a census found in one lifecycle: a document of {@link CENSUS_COLLECTION}, of 64 KB at most. Times are the server's. */
export interface Census {
  /** The lifecycle. */
  readonly _id: string
  /** The time when it began. */
  readonly at: Date
  /** The time that its commands took, in milliseconds. */
  readonly tookMs: number
  /** The interval until the next one, in milliseconds. */
  readonly everyMs: number
  /** The replica that took it, or the person. */
  readonly by: string
  /** Of the package that took it. */
  readonly version: string
  readonly phases: readonly PhaseCensus[]
  /** Errors of documents that will be tried again; at most 50, most documents first. `moreErrors`: the number left out. */
  readonly errors: readonly TroubleGroup[]
  readonly moreErrors: number
  /** Reasons of parked documents; at most 50, most documents first. */
  readonly parks: readonly TroubleGroup[]
  readonly moreParks: number
  /** Causes of the last hour that it didn't find, at most 50: those that come back keep when they were first seen. Absent: an older version took it. */
  readonly gone?: readonly GoneCause[]
  /** What documents wait for, by `on` of their `step.wait`, '-': it doesn't say; at most 50, most documents first. */
  readonly waits: readonly {
    readonly on: string
    readonly phase: string
    readonly documents: Count
    readonly oldest: Date
    readonly ids: readonly unknown[]
  }[]
  readonly questions: {
    readonly documents: Count
    readonly nearestDeadline: Date | null
    readonly ids: readonly unknown[]
  }
  /** Documents that have been due for over a minute, and the reason. */
  readonly overdue: readonly {
    readonly phase: string
    readonly documents: Count
    readonly why: 'paused' | 'limit' | 'busy' | 'unhandled'
    readonly limit?: string
    readonly oldest: Date
    readonly ids: readonly unknown[]
  }[]
  /** Documents that no claim can use as they are. */
  readonly broken: readonly {
    readonly field: string
    readonly found: string
    readonly documents: Count
    readonly ids: readonly unknown[]
  }[]
  /** Documents that take step after step in a phase without a wait, an error or a move. */
  readonly loops: readonly { readonly phase: string; readonly documents: Count; readonly ids: readonly unknown[] }[]
  /** Documents with callbacks that were given up. */
  readonly callbacks: { readonly givenUp: Count; readonly ids: readonly unknown[] }
}

/** A census without what its taker adds. */
export type CensusTaken = Omit<Census, 'everyMs' | 'by' | 'version'>

/** A read of it never waits for longer. */
const MOST_MS = 5_000
/** The most that are read. */
const MOST_LIFECYCLES = 2_000

export const censusOf = (db: Db): Collection<Document & { _id: string }> => protocolCollection(db, CENSUS_COLLECTION)

/**
 * Reads the last census of each lifecycle, or of those named, with the server's time. A lifecycle of which none was ever taken is absent: no
 * replica runs it, or only older ones do.
 * @throws the database's own errors
 * @example (await readCensus(db)).census.get('order')?.phases[0] // { phase: 'Packing', documents: { n: 12 }, due: { n: 3 }, ... }
 */
export async function readCensus(
  db: Db,
  names?: readonly string[],
): Promise<{ readonly census: ReadonlyMap<string, Census>; readonly now: Date }> {
  const match = names ? [{ $match: { _id: { $in: [...names] } } }] : []
  const pipeline = [...match, { $limit: MOST_LIFECYCLES }, { $replaceWith: { $mergeObjects: ['$$ROOT', NOW] } }]
  const rows = await readOwnFields((how) =>
    censusOf(db)
      .aggregate(pipeline, { maxTimeMS: MOST_MS, ...how })
      .toArray(),
  )
  const now = rows[0]?.['now'] ?? (await db.admin().command({ hello: 1 }))['localTime']
  const census = rows.flatMap(({ now, ...stored }) => (isCensus(stored) ? [[stored._id, stored] as const] : []))
  return { census: new Map(census), now }
}

const NOW = { now: '$$NOW' }

const isCensus = (stored: Document): stored is Census => isWholeCensus(stored)
