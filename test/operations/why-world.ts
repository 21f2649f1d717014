import { afterEach, expect } from '@jest/globals'
import { type Db, type Document, MongoServerError } from 'mongodb'
import type { Replica } from '../../src/index.js'
import { LIMITS_COLLECTION, REPLICAS_COLLECTION, TASK_LOCK_INIT_TIME } from '../../src/lock/index.js'
import { type System, type TermName, whyDocument } from '../../src/operations/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate, replicaOf, thingOf, things } from '../support/thing.js'

export const ago = (ms: number) => new Date(Date.now() - ms)
export const IN_AN_HOUR = () => new Date(Date.now() + 3_600_000)
export const lifecycle = thingOf({
  phases: {
    Creating: { next: ['Created', 'Deleting'], limits: ['api'], deadline: { after: '1h', moveTo: 'Deleting' } },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true },
  },
  maxClaims: 3,
  callbacks: ['onRemoved'],
})

/** A database with a lifecycle whose replica, once there, holds what it claims until the test ends. To be called in a `describe`. */
export function useWhy() {
  const replicas: Replica[] = []
  let hangs = gate()
  afterEach(async () => {
    hangs.open()
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  // After that, so that it goes last.
  const database = useDatabase()
  const system = (more: Partial<System> = {}): System => ({
    ...{ db: database.db, models: [lifecycle.model], doorbell: 'off', ...more },
  })
  const collection = (name: string) => database.db.collection<Document & { _id: string }>(name)
  const insert = (document: Document) =>
    things(database.db).insertOne({
      _id: 'a',
      phase: 'Creating',
      lockedAt: TASK_LOCK_INIT_TIME,
      updatedAt: ago(5_000),
      ...document,
    })

  async function present(name = 'api') {
    await collection(LIMITS_COLLECTION).updateOne({ _id: 'api' }, { $set: { slots: 5 } }, { upsert: true })
    hangs = gate()
    const { wait } = hangs
    const handlers = {
      Creating: async (_doc: unknown, step: { moveTo(phase: 'Created'): never }) => {
        await wait
        return step.moveTo('Created')
      },
      Deleting: async (_doc: unknown, step: { moveTo(phase: 'Deleted'): never }) => step.moveTo('Deleted'),
    }
    const bound = lifecycle.handle(handlers as never, { onRemoved: () => wait } as never)
    const replica = replicaOf(database.db, bound, { name, doorbell: 'off' })
    replicas.push(replica)
    await replica.prepare()
    replica.wakeBetweenTicks()
    await replica.tick()
    await eventually(async () =>
      expect(await collection(REPLICAS_COLLECTION).findOne({ _id: replica.identity })).not.toBeNull(),
    )
    return replica
  }

  const why = (more: Partial<System> = {}) => whyDocument(system(more), { id: 'a' })
  async function termNow(name: TermName, more: Partial<System> = {}) {
    const { terms, blockedBy, sentence, action } = await why(more)
    return { ...terms.find((one) => one.name === name)!, blockedBy, sentence, action }
  }

  /** A database whose server lets nobody read these collections. */
  const without = (...names: string[]): Db =>
    new Proxy(database.db, {
      get: (db, key) => {
        const value = Reflect.get(db, key)
        if (key !== 'collection') return typeof value === 'function' ? value.bind(db) : value
        return (name: string, ...rest: never[]) => {
          if (!names.includes(name)) return db.collection(name, ...rest)
          const refuse = () => Promise.reject(new MongoServerError({ message: `not authorized on ${name}`, code: 13 }))
          return Object.assign(Object.create(db.collection(name)), {
            aggregate: () => ({ toArray: refuse }),
            indexes: refuse,
          })
        }
      },
    })

  return { database, system, collection, insert, present, why, termNow, without }
}
