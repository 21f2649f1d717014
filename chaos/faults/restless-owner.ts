import { type Collection, type Db, type Document, MongoClient, MongoServerError, ObjectId } from 'mongodb'
import { OwnerClient } from '../../dist/phases/index.js'
import { apiGatewayDefinitions, COLLECTIONS } from '../../dist/tasks/index.js'
import { sleep } from '../../dist/time/index.js'
import type { ExpectedEnds } from '../proof/figures.ts'
import { type DocumentKey, documentKey } from '../proof/ledger.ts'
import { badGateway } from './bad-documents.ts'
import type { Misbehaviour } from './faulty-handlers.ts'
import { oneOf, type Random } from './random.ts'

type Wish = 'Running' | 'Stopped' | 'Deleted'

/** A gateway as its owner knows it. */
interface Owned {
  readonly id: ObjectId
  wish: Wish
  round: number
  /** Its document isn't sound, or its handler always throws: it may end parked. */
  readonly bad: boolean
  /** The owner has deleted the document itself. */
  removed: boolean
}

const RESTING: Readonly<Record<Wish, string>> = { Running: 'Started', Stopped: 'Stopped', Deleted: 'Deleted' }
const DUPLICATE_KEY = 11000
const BETWEEN_TRIES_MS = 200
const TRIES = 100
/** Of ten changes of mind this many are the last. */
const DELETED_OF_TEN = 5

/**
 * A plain client of the driver that never leaves its gateways alone. It repeats each write until the database has it: a
 * write that is tried again changes nothing twice.
 */
export class RestlessOwner {
  private readonly owned: Owned[] = []
  private readonly gateways: Collection

  private readonly client: MongoClient
  private readonly db: Db
  private readonly random: Random

  private constructor(client: MongoClient, database: string, random: Random) {
    this.client = client
    this.db = client.db(database)
    this.random = random
    this.gateways = this.db.collection(COLLECTIONS.gateway)
  }

  static async connect(uri: string, database: string, random: Random): Promise<RestlessOwner> {
    // A killed database loses what is not in a journal.
    const client = await new MongoClient(uri, { journal: true, serverSelectionTimeoutMS: 2_000 }).connect()
    return new RestlessOwner(client, database, random)
  }

  get count(): number {
    return this.owned.length
  }

  /** A new gateway with a trigger, a function and a stage. */
  async insert(misbehaves?: Misbehaviour): Promise<void> {
    const gatewayId = new ObjectId()
    const put = (collection: string, document: Document) => this.insertIfAbsent(collection, document)
    await put(COLLECTIONS.trigger, { _id: gatewayId, gatewayId, cron: '*/5 * * * *', function: 'hello', active: false })
    await put(COLLECTIONS.function, { _id: gatewayId, gatewayId, name: 'hello', source: "() => 'hello'" })
    await put(COLLECTIONS.stage, { _id: gatewayId, gatewayId, name: 'staging' })
    this.own(gatewayId, misbehaves === 'alwaysThrows')
    await put(COLLECTIONS.gateway, {
      _id: gatewayId,
      phase: 'Creating',
      state: 'Running',
      round: 0,
      name: `shop-${this.count}`,
      ...(misbehaves ? { misbehaves } : {}),
    })
  }

  async insertBad(variant: number): Promise<void> {
    const document = badGateway(variant)
    this.own(document._id, true)
    await this.insertIfAbsent(COLLECTIONS.gateway, document)
  }

  /** A gateway that was to run is to stop, or the reverse, or it is to be deleted, wherever it is in its lifecycle. */
  async changeMind(): Promise<void> {
    const one = this.pick()
    if (!one) return
    one.round += 1
    if (this.random() * 10 < DELETED_OF_TEN) one.wish = 'Deleted'
    else one.wish = one.wish === 'Running' ? 'Stopped' : 'Running'
    const { id, wish: state, round } = one
    await persist(() => this.gateways.updateOne({ _id: id, round: { $lt: round } }, { $set: { state, round } }))
  }

  async edit(): Promise<void> {
    const one = this.pick()
    if (one) await persist(() => this.gateways.updateOne({ _id: one.id }, { $set: { note: this.random() } }))
  }

  async wake(): Promise<void> {
    const one = this.pick()
    const owner = new OwnerClient(this.db, apiGatewayDefinitions().gateway.model)
    if (one) await persist(() => owner.wake(one.id))
  }

  /** Deletes a gateway's document, held or not. */
  async deleteDocument(): Promise<void> {
    const one = this.pick()
    if (!one) return
    one.removed = true
    await persist(() => this.gateways.deleteOne({ _id: one.id }))
  }

  /** How the last step of each sound gateway that still exists must end. */
  expectedEnds(): ExpectedEnds {
    return new Map(this.sound().map(({ id, wish }) => [documentKey('api-gateway', id), `moveTo ${RESTING[wish]}`]))
  }

  /** Gateways of which nothing is expected: they aren't sound, or their document was deleted. */
  exempt(): Set<DocumentKey> {
    return new Set(
      this.owned.filter(({ bad, removed }) => bad || removed).map(({ id }) => documentKey('api-gateway', id)),
    )
  }

  /** Sound gateways that aren't where their owner wants them. */
  async notArrived(): Promise<ObjectId[]> {
    const phases = await this.phases()
    return this.sound()
      .filter(({ id, wish }) => (phases.get(String(id)) ?? 'Deleted') !== RESTING[wish])
      .map(({ id }) => id)
  }

  /** How many of those that aren't sound didn't come to rest like the others: parked, put aside, asleep or skipped. */
  async broken(): Promise<number> {
    const phases = await this.phases()
    const isAtRest = (phase: unknown) =>
      ['Created', 'Started', 'Stopped', 'Deleted', undefined].includes(phase as string)
    return this.owned.filter(({ id, bad }) => bad && !isAtRest(phases.get(String(id)))).length
  }

  async close(): Promise<void> {
    await this.client.close()
  }

  private own(id: ObjectId, bad: boolean): void {
    this.owned.push({ id, wish: 'Running', round: 0, bad, removed: false })
  }

  private sound(): Owned[] {
    return this.owned.filter(({ bad, removed }) => !bad && !removed)
  }

  private pick(): Owned | undefined {
    return oneOf(
      this.random,
      this.sound().filter(({ wish }) => wish !== 'Deleted'),
    )
  }

  private async phases(): Promise<Map<string, unknown>> {
    const found = await this.gateways.find({}, { projection: { phase: 1 }, hint: { _id: 1 } }).toArray()
    return new Map(found.map(({ _id, phase }) => [String(_id), phase]))
  }

  private async insertIfAbsent(collection: string, document: Document): Promise<void> {
    await persist(async () => {
      try {
        await this.db.collection(collection).insertOne({ ...document })
      } catch (error) {
        if (!(error instanceof MongoServerError) || error.code !== DUPLICATE_KEY) throw error
      }
    })
  }
}

/** Repeats the write until it works: the database is killed now and then. */
async function persist(write: () => Promise<unknown>): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      await write()
      return
    } catch (error) {
      if (tries === TRIES) throw error
      await sleep(BETWEEN_TRIES_MS, { unref: true })
    }
  }
}
