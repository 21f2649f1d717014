import { afterAll, beforeAll } from '@jest/globals'
import { ReplicaSet, type ReplicaSetOptions } from '../../chaos/replica-set/replica-set.ts'
import { type TestDatabase, useDatabase } from '../support/database.js'

/** Starts a replica set for the tests of the enclosing `describe`, and gives each of them an empty database. */
export function useReplicaSet(options?: ReplicaSetOptions): {
  readonly set: ReplicaSet
  readonly database: TestDatabase
} {
  let set: ReplicaSet | undefined
  const now = () => {
    if (!set) throw new Error('the replica set exists inside tests and hooks only')
    return set
  }
  beforeAll(async () => {
    set = await ReplicaSet.start(options)
  })
  const database = useDatabase(() => now().uri)
  afterAll(async () => {
    await set?.close()
  })
  return {
    get set() {
      return now()
    },
    database,
  }
}
