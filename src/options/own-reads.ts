import type { BSONSerializeOptions, Db } from 'mongodb'

/** The options for reading Phaselock's own fields, regardless of those of a client or a database: the driver's defaults. */
export const OWN_READING = {
  ...{ raw: false, promoteValues: true, promoteLongs: true, useBigInt64: false },
  fieldsAsRaw: {},
} as const satisfies BSONSerializeOptions

/** The read options of the given databases, by the databases created here. */
const given = new WeakMap<Db, BSONSerializeOptions>()
const made = new WeakMap<Db, Db>()

const readsNumbers = ({ promoteValues, promoteLongs, useBigInt64 }: BSONSerializeOptions): boolean =>
  promoteValues !== false && promoteLongs !== false && useBigInt64 !== true

/**
 * Returns the same database, read as Phaselock reads. One that already reads this way is returned unchanged, as is one from a driver that
 * doesn't expose its options.
 */
export function ownReads(db: Db): Db {
  const { bsonOptions, client } = db
  const isRaw = bsonOptions?.raw === true || Object.keys(bsonOptions?.fieldsAsRaw ?? {}).length > 0
  if (!bsonOptions || typeof client?.db !== 'function' || (readsNumbers(bsonOptions) && !isRaw)) return db
  let own = made.get(db)
  if (!own) {
    own = client.db(db.databaseName, { ...(db as { options?: object }).options, ...OWN_READING })
    given.set(own, bsonOptions)
    made.set(db, own)
  }
  return own
}

/** The form in which the code of a database's owner, such as a handler, gets numbers. */
export type OwnersNumbers = Pick<BSONSerializeOptions, 'promoteValues' | 'promoteLongs' | 'useBigInt64'>

/** Returns a given database's options for numbers; undefined: as Phaselock reads them. */
export function numbersOf(db: Db): OwnersNumbers | undefined {
  const options = given.get(db) ?? db.bsonOptions
  if (!options || readsNumbers(options)) return undefined
  const { promoteValues = true, promoteLongs = true, useBigInt64 = false } = options
  return { promoteValues, promoteLongs, useBigInt64 }
}
