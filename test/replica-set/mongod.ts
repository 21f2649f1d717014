import { mongodPath, NoMongod } from '../../chaos/replica-set/mongod.ts'
import { describeWith } from '../support/describe-with.js'

/** `describe`, for tests that need a `mongod` that can replicate. */
export const describeWithMongod = await describeWith('replica set', mongodPath, NoMongod)
