import type { Db } from 'mongodb'

/** The oldest server whose pipeline updates, `$$NOW` and hints do what the lock protocol needs. */
export const OLDEST_SERVER_VERSION = '5.0'

/** The server is older than the lock protocol needs. */
export class ServerTooOld extends Error {
  override readonly name = 'ServerTooOld'
  constructor(readonly version: string) {
    super(
      `expected a MongoDB server of version ${OLDEST_SERVER_VERSION} or later, got ${version}; upgrade it, or connect to another`,
    )
  }
}

/** True for '5.0.0' and later; false also for what isn't a version. */
export function isServerVersionSupported(version: string): boolean {
  return Number.parseInt(version, 10) >= Number.parseInt(OLDEST_SERVER_VERSION, 10)
}

/**
 * The server's version, such as '8.0.4'.
 * @throws ServerTooOld
 */
export async function requireServerVersion(db: Db): Promise<string> {
  const { version } = await db.command({ buildInfo: 1 })
  const seen = String(version)
  if (!isServerVersionSupported(seen)) throw new ServerTooOld(seen)
  return seen
}
