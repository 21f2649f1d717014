export { answered, limitCommands, NoAnswer } from './answer.js'
export {
  type ConnectOptions,
  connectDatabase,
  connectWith,
  type DatabaseConnection,
  type DatabaseSource,
  DEFAULT_DATA_DIR,
  DEFAULT_DATABASE,
  doorbellClient,
  renewalClient,
} from './connect.js'
export { isA, isBulkWriteError, isDuplicateKey, isNetworkError, isOutage, isServerError } from './driver-errors.js'
export { durableOn } from './durable.js'
export { buildIndex, type IndexBuild, ServerOutOfSpace } from './index-build.js'
export { ALPHA_NOTICE, type LocalDatabaseSource } from './local-database.js'
export { type DatabaseAttempt, NoDatabase } from './no-database.js'
export { protocolClient } from './protocol-client.js'
export * from './protocol-options.js'
export { MissingRights, missingRights, type Rights } from './rights.js'
export { requireServerSemantics } from './server-semantics.js'
export { DriverMismatch, OLDEST_SERVER_VERSION, requireServerVersion, ServerTooOld } from './server-version.js'
export { isSharded, learnSharding, requireSafeSharding, unsafelySharded } from './sharded.js'
export { DatabaseUnreachable, type UnreachableReason } from './unreachable.js'
export { InvalidMongoUri, redactUri, withoutProtocolOptions } from './uri.js'
