/**
 * The database connection. The lock protocol's requirements on collections and commands aren't exported.
 *
 * @example
 * ```ts
 * import { connectDatabase } from 'phaselock/database'
 *
 * const connection = await connectDatabase() // MONGODB_URI, else a local database
 * console.log(connection.db.databaseName)
 * await connection.close()
 * ```
 * @packageDocumentation
 */
export {
  type ConnectOptions,
  connectDatabase,
  type DatabaseConnection,
  doorbellClient,
  renewalClient,
} from './connect.js'
export { ServerOutOfSpace } from './index-build.js'
export { NoDatabase } from './no-database.js'
export { MissingRights, type Rights } from './rights.js'
export { NotMongoDB } from './server-semantics.js'
export { DriverMismatch, ServerTooOld } from './server-version.js'
export { ShardedCollections } from './sharded.js'
export { DatabaseUnreachable } from './unreachable.js'
export { InvalidMongoUri, redactUri } from './uri.js'
