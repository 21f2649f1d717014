import { type Db, ObjectId } from 'mongodb'

/** The oldest server whose pipeline updates, `$$NOW` and hints do what the lock protocol needs. */
export const OLDEST_SERVER_VERSION = '5.0'

/** The server is older than the lock protocol needs. */
export class ServerTooOld extends Error {
  override readonly name = 'ServerTooOld'
  constructor(
    /** The server's version, such as '4.4.29'; 5.0 is the oldest that will do. */
    readonly version: string,
  ) {
    super(
      `expected a MongoDB server of version ${OLDEST_SERVER_VERSION} or later, got ${version}; upgrade it, or connect to another`,
    )
  }
}

/** The database is of a driver whose BSON has another major version: it refuses each ObjectId that it is given by this package. */
export class DriverMismatch extends Error {
  override readonly name = 'DriverMismatch'
  constructor(cause: Error) {
    super(
      `expected a database of the mongodb driver that phaselock uses, got one of another major version (Mongoose 8 brings one): ${cause.message}; give the replica a connection of its own, connectDatabase({ uri })`,
      { cause },
    )
  }
}

/** True for '5.0.0' and later; false also for what isn't a version. */
export function isServerVersionSupported(version: string): boolean {
  return Number.parseInt(version, 10) >= Number.parseInt(OLDEST_SERVER_VERSION, 10)
}

/**
 * The server's version, such as '8.0.4'.
 * @throws ServerTooOld, DriverMismatch
 */
export async function requireServerVersion(db: Db): Promise<string> {
  // The comment is what another major version of BSON refuses, before it sends anything.
  const { version } = await db.command({ buildInfo: 1, comment: new ObjectId() }).catch((error: Error) => {
    throw error.name === 'BSONVersionError' ? new DriverMismatch(error) : error
  })
  const seen = String(version)
  if (!isServerVersionSupported(seen)) throw new ServerTooOld(seen)
  return seen
}
