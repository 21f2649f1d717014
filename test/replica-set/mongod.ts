import { describe } from '@jest/globals'
import { mongodPath, NoMongod } from '../../chaos/replica-set/mongod.ts'

/** Where there is none, its tests are skipped, but not in CI. */
const missing = await mongodPath().then(
  () => undefined,
  (error: unknown) => error,
)
if (missing && (process.env['CI'] || !(missing instanceof NoMongod))) throw missing
if (missing) process.stderr.write(`skipped, no replica set: ${String(missing)}\n`)

/** `describe`, for tests that need a `mongod` that can replicate. */
export const describeWithMongod = missing ? describe.skip : describe
