import { afterEach, expect } from '@jest/globals'
import { type Collection, type Document, ObjectId } from 'mongodb'
import { PARKED_AT, TASK_LOCK_INIT_TIME } from '../../../src/lock/index.js'
import { backDate } from '../../../src/testing/index.js'
import { type TestDatabase, useDatabase } from '../../support/database.js'
import { historyOf, TaskWorld } from '../../support/task-world.js'
import type { TestSite } from './site.js'

/** Documents of one kind whose programs run in pods, the replicas that a test makes, and time that passes at will. */
export class PodWorld extends TaskWorld {
  constructor(
    override readonly database: TestDatabase,
    readonly site: TestSite,
    private readonly collection: string,
    private readonly entry: string,
  ) {
    super()
  }

  get documents(): Collection<Document> {
    return this.db.collection(this.collection)
  }

  /** What a plain client does. */
  async insert(fields: Document = {}): Promise<ObjectId> {
    const _id = new ObjectId()
    await this.documents.insertOne({ _id, phase: this.entry, image: 'shop:1', ...fields })
    return _id
  }

  async write(id: ObjectId, fields: Document): Promise<void> {
    await this.documents.updateOne({ _id: id }, { $set: fields })
  }

  async document(id: ObjectId): Promise<Document> {
    return (await this.documents.findOne({ _id: id })) ?? {}
  }

  /** Nobody sleeps through it. */
  protected override async beforeTurns(): Promise<void> {
    const sleeping = { lockedBy: null, lockedAt: { $gt: TASK_LOCK_INIT_TIME, $lt: PARKED_AT } }
    await this.documents.updateMany(sleeping, { $set: { lockedAt: TASK_LOCK_INIT_TIME } })
  }

  /** @param phase undefined: until the document is gone */
  async untilPhase(id: ObjectId, phase: string | undefined): Promise<Document> {
    await this.until(async () => expect((await this.document(id))['phase']).toBe(phase))
    return this.document(id)
  }

  async untilParked(id: ObjectId): Promise<string> {
    await this.until(async () => expect(await this.document(id)).toMatchObject({ lockedAt: PARKED_AT }))
    return (await this.document(id))['progress'].error.message
  }

  /** Until it waits for something that is worded so. */
  async untilWaiting(id: ObjectId, reason: RegExp): Promise<Document> {
    await this.until(async () => {
      expect(await this.document(id)).toMatchObject({ progress: { waitingFor: expect.stringMatching(reason) } })
    })
    return this.document(id)
  }

  /** Lets time pass for all documents. */
  pass(ms: number): Promise<number> {
    return backDate(this.documents, ms)
  }

  async history(id: ObjectId): Promise<string[]> {
    return historyOf(await this.document(id))
  }
}

/** @param make of an empty database */
export function useDocuments<World extends PodWorld>(make: (database: TestDatabase) => World): World {
  // Before the database's own hook: those that are registered first run first.
  afterEach(() => world.end())
  const world: World = make(useDatabase())
  return world
}

/** Fails once after each step has done its work: as if the replica had died before its outcome was recorded. */
export function crashingOnce(): {
  wrap: (lifecycle: string, phase: string, handler: AnyFunction) => AnyFunction
  readonly crashed: readonly string[]
} {
  const crashed: string[] = []
  const wrap = (_lifecycle: string, phase: string, handler: AnyFunction): AnyFunction => {
    return async (doc, step) => {
      const outcome = await handler(doc, step)
      const at = `${phase} ${step.name ?? '-'}`
      if (crashed.includes(at)) return outcome
      crashed.push(at)
      throw new Error('crashed before its outcome was recorded')
    }
  }
  return { wrap, crashed }
}

type AnyFunction = import('../../../src/index.js').AnyHandler
