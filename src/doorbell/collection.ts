import type { Collection, Db } from 'mongodb'
import { answered, protocolCollection } from '../database/index.js'
import { collectionExists } from '../lock/index.js'
import { systemClock } from '../time/index.js'
import type { Ring, RingEntry } from './ring.js'

/** The collection of rings, next to `phaselock.lifecycles`. */
export const DOORBELL_COLLECTION = 'phaselock.doorbell'
/** Room for about 500 rings, or 80 to 400 that name documents. A listener that falls further behind looks at everything. */
export const DOORBELL_BYTES = 64 * 1024

/** A ring lost in a server crash costs one tick at most. */
const HINT = { writeConcern: { w: 1, journal: false } } as const

const RING_FIELDS = ['_id', 'lifecycles', 'phases', 'ids', 'by', 'at']
const DROP_WITHIN_MS = 5_000

const NAMESPACE_NOT_FOUND = 26
const NAMESPACE_EXISTS = 48
/** The error code of a tailable cursor on a collection that isn't capped. */
const BAD_VALUE = 2

/** The collection isn't what a listener needs, and this process may not change it. */
export class DoorbellUnavailable extends Error {
  override readonly name = 'DoorbellUnavailable'
  constructor(
    readonly found: 'missing' | 'not capped' | "somebody else's",
    readonly database: string,
  ) {
    const bell = `db.getCollection('${DOORBELL_COLLECTION}')`
    const [wrong, first] = {
      missing: ['missing', ''],
      'not capped': ['not capped', `${bell}.drop(); `],
      "somebody else's": [
        "not capped and has documents that aren't rings",
        `${bell}.renameCollection('doorbell.kept'); `,
      ],
    }[found]
    super(
      `expected a capped collection ${DOORBELL_COLLECTION} in the database '${database}', but it is ${wrong}; run in mongosh, with a user who may: ` +
        `${first}db.createCollection('${DOORBELL_COLLECTION}', { capped: true, size: ${DOORBELL_BYTES} })`,
    )
  }
}

export const doorbellOf = (db: Db): Collection<RingEntry> => protocolCollection<RingEntry>(db, DOORBELL_COLLECTION)

export async function store(db: Db, by: string, { lifecycles, phases, ids }: Ring): Promise<void> {
  const entry = { lifecycles, ...(phases && { phases }), ...(ids && { ids }), by, at: systemClock.now() }
  await doorbellOf(db).insertMany([entry], HINT)
}

/** True if this is the server's answer to a tailable cursor on a collection that isn't capped. */
export const isNotCapped = (error: unknown): boolean => codeOf(error) === BAD_VALUE && /capped/.test(String(error))

export interface MakeOptions {
  readonly db: Db
  /** If false, nothing is created or dropped: the collection must exist and be capped. */
  readonly create: boolean
  readonly by: string
}

/**
 * Makes a collection on which tailable cursors work: capped, and with an entry in it, because a cursor on an empty one dies
 * immediately. Any number of listeners may do this at the same time.
 * @param found what a tailable cursor found
 * @throws DoorbellUnavailable
 */
export async function makeDoorbell(found: 'dead' | 'notCapped', { db, create, by }: MakeOptions): Promise<void> {
  if (create) {
    if (found === 'notCapped') await dropRings(db)
    await answered(db.createCollection(DOORBELL_COLLECTION, { capped: true, size: DOORBELL_BYTES })).catch((error) => {
      if (codeOf(error) !== NAMESPACE_EXISTS) throw error
    })
  } else {
    if (found === 'notCapped') throw new DoorbellUnavailable('not capped', db.databaseName)
    if (!(await collectionExists(doorbellOf(db)))) throw new DoorbellUnavailable('missing', db.databaseName)
  }
  await store(db, by, { lifecycles: [] })
}

/**
 * Drops a collection that a ringer's insert has recreated after someone dropped it. It holds only hints, and losing those costs a
 * tick.
 * @throws DoorbellUnavailable, and drops nothing, if the collection holds anything else
 */
async function dropRings(db: Db): Promise<void> {
  const fields = { $map: { input: { $objectToArray: '$$ROOT' }, in: '$$this.k' } }
  const noRing = {
    $or: [{ lifecycles: { $exists: false } }, { $expr: { $not: [{ $setIsSubset: [fields, RING_FIELDS] }] } }],
  }
  const other = await doorbellOf(db).findOne(noRing, { projection: { _id: 1 }, maxTimeMS: DROP_WITHIN_MS })
  if (other) throw new DoorbellUnavailable("somebody else's", db.databaseName)
  await answered(doorbellOf(db).drop()).catch((error) => {
    if (codeOf(error) !== NAMESPACE_NOT_FOUND) throw error // another listener was quicker
  })
}

const codeOf = (error: unknown): unknown => (error as { code?: unknown }).code
