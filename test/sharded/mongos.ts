import { NoMongod } from '../../chaos/replica-set/mongod.ts'
import { describeWith } from '../support/describe-with.js'
import { shardingPrograms } from './cluster.ts'

/** `describe`, for tests that need a `mongod` and the `mongos` beside it. */
export const describeWithMongos = await describeWith('sharded cluster', shardingPrograms, NoMongod)
