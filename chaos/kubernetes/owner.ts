import { type Collection, type Document, MongoClient, ObjectId } from 'mongodb'
import { INSTANCE_COLLECTION } from 'phaselock-tasks'

const DOMAIN_COLLECTION = 'RuntimeDomain'
/** For the demo's documents, the phases that each state leads to; a document that is gone was deleted. */
const ARRIVED = { Running: ['Created', 'Started'], Stopped: ['Stopped'], Deleted: ['Deleted'] } as const

export type Wanted = keyof typeof ARRIVED

/** The owner of domains and instances: a plain client of the driver, which writes its own fields and `phase`. */
export class Owner {
  readonly domains: ObjectId[] = []
  readonly instances: ObjectId[] = []
  private readonly collections: { domain: Collection; instance: Collection }

  private readonly client: MongoClient

  private constructor(client: MongoClient, database: string) {
    this.client = client
    const db = client.db(database)
    this.collections = { domain: db.collection(DOMAIN_COLLECTION), instance: db.collection(INSTANCE_COLLECTION) }
  }

  static async connect(uri: string, database: string): Promise<Owner> {
    return new Owner(await new MongoClient(uri).connect(), database)
  }

  get count(): number {
    return this.domains.length + this.instances.length
  }

  /** A domain for each of these gateways, with a name of its own, so that it needs a certificate. */
  async insertDomains(gatewayIds: readonly string[]): Promise<string[]> {
    const first = this.domains.length
    const documents = gatewayIds.map((gatewayId, i) => ({
      _id: new ObjectId(),
      phase: 'Creating',
      state: 'Running',
      gatewayId,
      host: `shop-${first + i + 1}.demo.example.org`,
      customDomain: `www.shop-${first + i + 1}.example`,
      service: { name: 'shop', port: 80 },
    }))
    await this.collections.domain.insertMany(documents)
    const ids = documents.map(({ _id }) => _id)
    this.domains.push(...ids)
    return ids.map(String)
  }

  async insertInstances(count: number, gatewayId: string): Promise<void> {
    const documents = Array.from({ length: count }, () => ({
      _id: new ObjectId(),
      phase: 'Starting',
      state: 'Running',
      gatewayId,
      image: 'shop.example/shop:1',
      ports: [{ port: 80, containerPort: 8080 }],
    }))
    if (count > 0) await this.collections.instance.insertMany(documents)
    this.instances.push(...documents.map(({ _id }) => _id))
  }

  /** How many domains have waited for their certificate for at least this long. */
  async waitingLong(seconds: number): Promise<number> {
    const waitedSince = { $lt: ['$progress.waitingSince', { $subtract: ['$$NOW', seconds * 1_000] }] }
    return this.collections.domain.countDocuments({ phase: 'Creating', 'progress.step': 'issued', $expr: waitedSince })
  }

  async want(state: Wanted): Promise<void> {
    for (const collection of Object.values(this.collections)) {
      await collection.updateMany({}, { $set: { state } }, { hint: { _id: 1 } })
    }
  }

  /** How many documents are in a phase that this state leads to. */
  async arrived(state: Wanted): Promise<number> {
    return this.count - (await this.missing(state)).length
  }

  /** Documents that aren't, for people. */
  async missing(state: Wanted): Promise<string[]> {
    const phases = new Map((await this.all()).map(({ _id, phase, progress }) => [String(_id), { phase, progress }]))
    return [...this.domains, ...this.instances].flatMap((id) => {
      const { phase = 'Deleted', progress } = phases.get(String(id)) ?? {}
      if ((ARRIVED[state] as readonly string[]).includes(phase)) return []
      const why = progress?.error?.message ?? progress?.waitingFor ?? 'no reason'
      return [`${id} is in ${phase}: ${why}`]
    })
  }

  /** How many documents the replica with this name holds. */
  async heldBy(replica: string): Promise<number> {
    const lockedBy = { $gte: `${replica}~`, $lt: `${replica}\x7f` }
    const counts = Object.values(this.collections).map((collection) => collection.countDocuments({ lockedBy }))
    return (await Promise.all(counts)).reduce((total, count) => total + count, 0)
  }

  async close(): Promise<void> {
    await this.client.close()
  }

  private async all(): Promise<Document[]> {
    const projection = { phase: 1, 'progress.error.message': 1, 'progress.waitingFor': 1 }
    const find = (collection: Collection) => collection.find({}, { projection, hint: { _id: 1 } }).toArray()
    return (await Promise.all(Object.values(this.collections).map(find))).flat()
  }
}
