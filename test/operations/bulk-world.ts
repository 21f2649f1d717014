import type { Collection, Db, Document } from 'mongodb'
import { Replica, silentLogger } from '../../src/index.js'
import {
  beginOperation,
  type OperationDocument,
  type OperationState,
  operationLifecycle,
  operationNamed,
  type System,
} from '../../src/operations/index.js'
import { replicaOf, thing, thingWith } from '../support/thing.js'

/** Operations on things: their lifecycle is registered, and nobody works on them unless a test does. */
export class BulkWorld {
  constructor(readonly db: Db) {}

  static async of(db: Db): Promise<BulkWorld> {
    const replica = replicaOf(
      db,
      thingWith(async (_doc, step) => step.wait('a van', { for: '1h' })),
      { logger: silentLogger },
    )
    await replica.prepare()
    await replica.stop()
    return new BulkWorld(db)
  }

  get things(): Collection<Document & { _id: string }> {
    return this.db.collection('Thing') as never
  }

  get system(): System {
    return { db: this.db, models: [thing.model] }
  }

  begin(action: string, selection: object, more: object = {}): Promise<OperationDocument> {
    const request = { action, selection: { lifecycle: 'thing', ...selection }, by: 'ana', rate: 100_000, ...more }
    return beginOperation(this.system, request as never)
  }

  /** A replica that works on operations; `db`: through which it reaches what they are about. */
  worker(db: Db = this.db): Replica {
    return new Replica({ db: this.db, lifecycles: [operationLifecycle({ db })], logger: silentLogger })
  }

  /** Begins it and works until it has ended. */
  async run(action: string, selection: object, more: object = {}): Promise<OperationState> {
    const { _id } = await this.begin(action, selection, more)
    return this.finish(_id)
  }

  async finish(id: string): Promise<OperationState> {
    const worker = this.worker()
    await worker.runOnce()
    await worker.stop()
    return operationNamed(this.system, id)
  }

  /** The same database; `before` is called before each write to a thing, with how many there were before. */
  writingThings(before: (count: number) => unknown, db: Db = this.db): Db {
    return this.writing('Thing', ['updateOne', 'deleteOne'], before, db)
  }

  /** The same, before each that keeps what things were. */
  keeping(before: (count: number) => unknown): Db {
    return this.writing('phaselock.operations.changes', ['bulkWrite'], before)
  }

  /** The same, before each that pauses or resumes one. */
  pausingThings(before: (count: number) => unknown): Db {
    return this.writing('phaselock.lifecycles', ['findOneAndUpdate'], before)
  }

  private writing(
    watched: string,
    writes: readonly ('updateOne' | 'deleteOne' | 'findOneAndUpdate' | 'bulkWrite')[],
    before: (count: number) => unknown,
    db: Db = this.db,
  ): Db {
    let count = 0
    return new Proxy(db, {
      get(target, name) {
        if (name !== 'collection') return Reflect.get(target, name)
        return (called: string, ...more: never[]) => {
          const collection = target.collection(called, ...more)
          if (called !== watched) return collection
          for (const write of writes) {
            const own = collection[write].bind(collection) as (...given: unknown[]) => Promise<unknown>
            collection[write] = (async (...given: unknown[]) => {
              await before(count++)
              return own(...given)
            }) as never
          }
          return collection
        }
      },
    })
  }
}

export const IN_AN_HOUR = new Date(Date.now() + 3_600_000)
export const HELD = { lockedAt: IN_AN_HOUR, lockedBy: 'api~5f3a9c#7.2' }
export const ASLEEP = { lockedAt: IN_AN_HOUR, progress: { waitingFor: 'rain', resumeAt: IN_AN_HOUR } }
export const PARKED = { lockedAt: new Date('9999-12-31'), progress: { attempts: 3, error: { message: 'no tape' } } }

export const many = (count: number, fields: object, prefix = 'd') =>
  Array.from({ length: count }, (_, i) => ({
    _id: `${prefix}${String(i).padStart(5, '0')}`,
    phase: 'Creating',
    ...fields,
  }))
