import { type Collection, type Db, type Document, MongoClient, ObjectId } from 'mongodb'
import { COLLECTIONS, databaseNameFor } from '../../dist/tasks/index.js'
import type { ExpectedEnds } from './figures.ts'
import { documentKey } from './ledger.ts'

/** The ratio of gateways to those with a step that takes longer than the lock timeout. */
const ONE_IN = 25

/**
 * The owner of the gateways: a plain client of the driver that knows nothing of Phaselock. It writes its own fields and
 * `phase`, as a program in any other language would.
 */
export class GatewayOwner {
  private readonly inserted: ObjectId[] = []
  private readonly deleted = new Set<ObjectId>()
  private readonly gateways: Collection
  private readonly client: MongoClient
  private readonly db: Db

  private constructor(client: MongoClient, db: Db) {
    this.client = client
    this.db = db
    this.gateways = db.collection(COLLECTIONS.gateway)
  }

  static async connect(uri: string, database: string): Promise<GatewayOwner> {
    const client = await new MongoClient(uri).connect()
    return new GatewayOwner(client, client.db(database))
  }

  get count(): number {
    return this.inserted.length
  }

  /** Inserts gateways that are to run, each with a trigger, two functions and a stage. */
  async insert(count: number): Promise<void> {
    const ids = Array.from({ length: count }, () => new ObjectId())
    const first = this.inserted.length
    const children = (of: (gatewayId: ObjectId) => Document[]) => ids.flatMap(of)
    await this.db
      .collection(COLLECTIONS.trigger)
      .insertMany(children((gatewayId) => [{ gatewayId, cron: '*/5 * * * *', function: 'hello', active: false }]))
    await this.db
      .collection(COLLECTIONS.function)
      .insertMany(
        children((gatewayId) => ['hello', 'goodbye'].map((name) => ({ gatewayId, name, source: `() => '${name}'` }))),
      )
    await this.db.collection(COLLECTIONS.stage).insertMany(children((gatewayId) => [{ gatewayId, name: 'staging' }]))
    await this.gateways.insertMany(
      ids.map((_id, i) => ({
        _id,
        phase: 'Creating',
        state: 'Running',
        name: `shop-${first + i + 1}`,
        ...((first + i) % ONE_IN === ONE_IN - 1 ? { slow: true } : {}),
      })),
    )
    this.inserted.push(...ids)
  }

  /** Sets every second gateway to be deleted, however far it has come. Resolves to the number of these. */
  async deleteHalf(): Promise<number> {
    const chosen = this.inserted.filter((_, i) => i % 2 === 1)
    await this.gateways.updateMany({ _id: { $in: chosen } }, { $set: { state: 'Deleted' } }, { hint: { _id: 1 } })
    for (const id of chosen) this.deleted.add(id)
    return chosen.length
  }

  /** The expected end of the last step of each gateway. */
  expectedEnds(): ExpectedEnds {
    return new Map(this.inserted.map((id) => [documentKey('api-gateway', id), `moveTo ${this.wanted(id)}`]))
  }

  /** The number of gateways that have the state that their owner wants. */
  async arrived(): Promise<number> {
    const phases = new Map<string, string>()
    const found = this.gateways.find({ _id: { $in: this.inserted } }, { projection: { phase: 1 }, hint: { _id: 1 } })
    for await (const { _id, phase } of found) phases.set(String(_id), phase)
    return this.inserted.filter((id) => (phases.get(String(id)) ?? 'Deleted') === this.wanted(id)).length
  }

  private wanted(id: ObjectId): 'Deleted' | 'Started' {
    return this.deleted.has(id) ? 'Deleted' : 'Started'
  }

  /** Drops the databases of the gateways, on a server that keeps running. */
  async dropDatabases(): Promise<void> {
    for (const id of this.inserted) await this.client.db(databaseNameFor(id)).dropDatabase()
  }

  async close(): Promise<void> {
    await this.client.close()
  }
}
