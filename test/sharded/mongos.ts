import { describe } from '@jest/globals'
import { NoMongod } from '../../chaos/replica-set/mongod.ts'
import { shardingPrograms } from './cluster.ts'

/** Where there is none, its tests are skipped, but not in CI. */
const missing = await shardingPrograms().then(
  () => undefined,
  (error: unknown) => error,
)
if (missing && (process.env['CI'] || !(missing instanceof NoMongod))) throw missing
if (missing) process.stderr.write(`skipped, no sharded cluster: ${String(missing)}\n`)

/** `describe`, for tests that need a `mongod` and the `mongos` beside it. */
export const describeWithMongos = missing ? describe.skip : describe
