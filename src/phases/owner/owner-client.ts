import { type ClientSession, type Collection, type Db, type Document, type Filter, ObjectId } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import {
  AS_IT_STANDS,
  asReadable,
  historyWith,
  isFromTheFuture,
  isNotHeld,
  PARKED_AT,
  readLockTimeouts,
  TASK_LOCK_INIT_TIME,
  termsOf,
} from '../../lock/index.js'
import type { LifecycleModel } from '../definition/lifecycle.js'
import { whyNotStorable } from '../storable.js'
import { InvalidDocument } from './invalid-document.js'
import { OwnerRings } from './owner-rings.js'
import type {
  IdOf,
  InsertOptions,
  NewDocument,
  OwnerClientOptions,
  OwnerOptions,
  OwnerVerdict,
  StateOf,
  StoredDocument,
  UnparkOptions,
} from './owner-types.js'

/**
 * What an owner, a person or a program beside the replicas, does with documents of one lifecycle. Each is one conditional
 * update judged by the database, so that it can't fight with a holder: nothing here touches a held document's lease. What
 * became of it is a value, never an exception.
 *
 * Replicas are told at once of what gives them something to do (docs/doorbell.md). That is a hint: no method waits for it or fails
 * by it.
 */
export class OwnerClient<Doc = Document, Entry extends string = string, Phase extends string = string> {
  readonly documents: Collection
  private readonly progress: string
  private readonly rings: OwnerRings

  constructor(
    private readonly db: Db,
    readonly model: LifecycleModel,
    options: OwnerClientOptions = {},
  ) {
    this.rings = new OwnerRings(db, model, options)
    this.documents = protocolCollection(db, model.collection)
    this.progress = model.settings.progress
  }

  /**
   * Inserts a document; without a `phase` it starts in the first entry phase. Returns its `_id`.
   * @throws InvalidDocument for an unknown phase, or a value that can't be stored as it is; nothing is inserted then
   */
  async insert(doc: NewDocument<Doc, Entry>, options: OwnerOptions = {}): Promise<IdOf<Doc>> {
    const [id] = await this.insertMany([doc], options)
    return id as IdOf<Doc>
  }

  /** @throws InvalidDocument as `insert` does; nothing is inserted then, of none of them */
  async insertMany(docs: readonly NewDocument<Doc, Entry>[], options: InsertOptions = {}): Promise<IdOf<Doc>[]> {
    const complete = docs.map((doc): Document => this.withId({ phase: this.model.entries[0], ...doc }))
    for (const doc of complete) this.check(doc)
    const inserting = this.documents.insertMany(complete, inSession(options))
    const stored = this.rings.inserting(complete, options)
    const { insertedIds } = await inserting
    stored()
    return Object.values(insertedIds) as IdOf<Doc>[]
  }

  find(id: IdOf<Doc>, options: OwnerOptions = {}): Promise<StoredDocument<Doc, Phase> | null> {
    const found = asReadable((how) => this.documents.findOne({ _id: id as never }, { ...how, ...inSession(options) }))
    return found as Promise<StoredDocument<Doc, Phase> | null>
  }

  /** Says what the owner wants; a state rule moves the document when nobody holds it. */
  async setState(id: IdOf<Doc>, state: StateOf<Doc>, options: OwnerOptions = {}): Promise<OwnerVerdict> {
    const { matchedCount, modifiedCount } = await this.documents.updateOne(
      { _id: id as never },
      { $set: { state } },
      inSession(options),
    )
    if (modifiedCount > 0) this.rings.wantedState(state, options)
    return matchedCount === 0 ? 'notFound' : modifiedCount === 0 ? 'unchanged' : 'done'
  }

  /** Ends a sleep: due at once. A document that is held is being worked on already; a parked one needs `unpark`. */
  async wake(id: IdOf<Doc>, options: OwnerOptions = {}): Promise<OwnerVerdict> {
    const { matchedCount } = await this.documents.updateOne(
      { _id: id as never, lockedBy: null, lockedAt: { $ne: PARKED_AT }, ...(await this.notLegacyLease()) },
      [{ $set: { lockedAt: TASK_LOCK_INIT_TIME } }, { $unset: `${this.progress}.resumeAt` }],
      inSession(options),
    )
    if (matchedCount > 0) this.rings.look(options)
    return matchedCount > 0 ? 'done' : this.whyNot(id, options)
  }

  /** Gives a parked document another go, with its attempts and claims at 0. */
  async unpark(id: IdOf<Doc>, options: UnparkOptions = {}): Promise<OwnerVerdict> {
    const { session } = options
    const parked = { lockedBy: null, lockedAt: { $gte: PARKED_AT } }
    if (await this.giveAnotherGo(id, parked, 'unparked', options)) return 'done'
    const found = options.force ? await this.find(id, { session }) : null
    if (found?.['lockedBy'] != null) {
      // Conditional on whom it was taken from: nobody is freed who hasn't been seen.
      const lockedBy = { $eq: found['lockedBy'] }
      const held = { lockedBy, $expr: isFromTheFuture }
      if (await this.giveAnotherGo(id, held, `freed from ${String(found['lockedBy'])}`, options)) return 'done'
    }
    return this.whyNot(id, { session })
  }

  private async giveAnotherGo(
    id: IdOf<Doc>,
    where: Filter<Document>,
    reason: string,
    { by = 'owner', session }: UnparkOptions,
  ): Promise<boolean> {
    const terms = termsOf(this.model.settings.lockTimeoutMs, { progress: this.progress })
    const history = historyWith(terms, { outcome: 'owner', step: null, reason, by, ms: 0 })
    const { matchedCount } = await this.documents.updateOne(
      { $and: [{ _id: id as never, $expr: this.isOurs() }, where] },
      [
        {
          $set: {
            lockedAt: TASK_LOCK_INIT_TIME,
            lockedBy: '$$REMOVE',
            [this.progress]: { $mergeObjects: [`$${this.progress}`, { attempts: 0, claims: 0, history }] },
          },
        },
        { $unset: `${this.progress}.error` },
      ],
      inSession({ session }),
    )
    if (matchedCount > 0) this.rings.look({ session })
    return matchedCount > 0
  }

  /** Deletes a document outright, whoever holds it: its holder's outcome is then dropped as lost. */
  async remove(id: IdOf<Doc>, options: OwnerOptions = {}): Promise<OwnerVerdict> {
    const { deletedCount } = await this.documents.deleteOne({ _id: id as never }, inSession(options))
    return deletedCount > 0 ? 'done' : 'notFound'
  }

  /** Resolves when replicas have been told of what was written, or it was given up: for a program that ends, or a second at most. */
  flush(): Promise<void> {
    return this.rings.flush()
  }

  /** A query for a type matches what stands in an array too. */
  private isOurs(): Document {
    const isOf = (field: string, type: string) => ({ $eq: [{ $type: `$${field}` }, type] })
    return { $and: [isOf(this.progress, 'object'), isOf('phase', 'string')] }
  }

  /** What sleeps says so itself where others lease by `lockedAt` alone: a lease of theirs must not end by being woken. */
  private async notLegacyLease(): Promise<Filter<Document>> {
    const { name, settings } = this.model
    if (!settings.legacyWriters) return {}
    const inForce = (await readLockTimeouts(this.db, [name])).get(name)
    const validUntil = inForce?.knownUntil
    const more = { progress: this.progress, legacyWriters: true, validUntil }
    const terms = termsOf(inForce?.dueMs ?? settings.lockTimeoutMs, more)
    return { ...isNotHeld(terms) }
  }

  private async whyNot(id: IdOf<Doc>, options: OwnerOptions): Promise<OwnerVerdict> {
    const reading = { projection: { lockedBy: 1, lockedAt: 1 }, ...AS_IT_STANDS }
    const found = await this.documents.findOne({ _id: id as never }, { ...reading, ...inSession(options) })
    if (!found) return 'notFound'
    if (found['lockedBy'] != null) return 'held'
    return found['lockedAt'] instanceof Date && found['lockedAt'].getTime() === PARKED_AT.getTime()
      ? 'parked'
      : 'notParked'
  }

  /** As the driver would give it one, but before the insert. */
  private withId(doc: Document): Document {
    const { forceServerObjectId, pkFactory } = this.db.options ?? {}
    if (doc['_id'] != null || forceServerObjectId) return doc
    return { ...doc, _id: pkFactory?.createPk() ?? new ObjectId() }
  }

  private check(doc: Document): void {
    const { name, phases } = this.model
    const phase = doc['phase']
    if (!phases.has(phase)) throw new InvalidDocument(name, phase, [...phases.keys()])
    const problem = whyNotStorable(doc)
    if (problem !== undefined) throw new InvalidDocument(name, phase, [...phases.keys()], `${name}: ${problem}`)
  }
}

/** The driver takes no `session: undefined`. Inside a transaction it leaves our write concern to the transaction's own. */
function inSession({ session }: OwnerOptions): { session?: ClientSession } {
  return session ? { session: session as unknown as ClientSession } : {}
}
