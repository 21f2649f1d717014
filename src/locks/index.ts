/**
 * Locks by name, shared by all processes that use one database: in MongoDB, PostgreSQL, MySQL or MariaDB, Redis (one server, or a quorum of several), or in memory.
 * This entry loads no driver: a process with its locks in Redis never loads MongoDB's.
 *
 * @example
 * ```ts
 * import { LockExecutor, openLockProvider } from 'phaselock/locks'
 *
 * const provider = await openLockProvider({ url: 'redis://redis:6379' })
 * const locks = new LockExecutor(provider)
 * const outcome = await locks.executeWithLock(
 *   async ({ fence, signal }) => console.log(`run no. ${fence}`, signal.aborted),
 *   { name: 'nightly-reports', lockAtMostFor: '30m' },
 * )
 * if (!outcome.executed) console.log(`${outcome.heldBy} has it until ${outcome.until}`)
 * await provider.close()
 * ```
 * @packageDocumentation
 */
export { holderIdentity } from './acquisition.js'
export { ActiveLock } from './active-lock.js'
export { InvalidLockDuration, type LockDuration } from './durations.js'
export * from './errors.js'
export type { LockConfig } from './lock-config.js'
export * from './lock-executor.js'
export { type LockObserver, observeLocks } from './lock-observer.js'
export { LockAssert, LockExtender } from './lock-path.js'
export type * from './lock-provider.js'
export { type LockDb, type LockProviderOptions, mongoLockProvider, openLockProvider } from './open-provider.js'
export { memoryLocks } from './providers/memory.js'
export type { MysqlPool } from './providers/mysql.js'
export type { RedisClient } from './providers/redis.js'
