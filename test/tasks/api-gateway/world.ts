import { afterEach, expect } from '@jest/globals'
import { type Collection, type Document, ObjectId } from 'mongodb'
import { instanceLifecycles } from 'phaselock-tasks'
import type { Replica, ReplicaOptions } from '../../../src/index.js'
import {
  type ApiGatewayLifecycles,
  type ApiGatewayOptions,
  apiGatewayLifecycles,
  COLLECTIONS,
} from '../../../src/tasks/index.js'
import { useDatabase } from '../../support/database.js'
import { historyOf, TaskWorld } from '../../support/task-world.js'

type Options = Omit<ApiGatewayOptions, 'db'>
export type Id = string | number | object
export type Fields = Document & { _id: Id }

/** A database with gateways, the replicas that a test makes, and what tests ask of them. Gateways' databases go with the test. */
export class World extends TaskWorld {
  collection(kind: keyof typeof COLLECTIONS): Collection<Fields> {
    return this.db.collection<Fields>(COLLECTIONS[kind])
  }

  /** A replica with lifecycles of its own, as in a process of its own. */
  replica(options: Options = {}, more: Partial<ReplicaOptions> = {}): Replica & { lifecycles: ApiGatewayLifecycles } {
    const lifecycles = apiGatewayLifecycles({ db: this.db, instances: instanceLifecycles, ...options })
    return Object.assign(this.run(lifecycles.all, more), { lifecycles })
  }

  /** What a plain client does: inserts a document with just its own fields and `phase`. */
  async insert(fields: Document = {}): Promise<Id> {
    const { insertedId } = await this.collection('gateway').insertOne({
      _id: new ObjectId(),
      phase: 'Creating',
      ...fields,
    })
    return insertedId
  }

  async addChildren(gatewayId: Id, count = 2): Promise<void> {
    for (const kind of ['trigger', 'function', 'stage'] as const) {
      const children = Array.from({ length: count }, (_, n) => ({
        _id: new ObjectId(),
        gatewayId,
        name: `${kind}${n}`,
      }))
      await this.collection(kind).insertMany(children)
    }
  }

  async want(id: Id, state: string): Promise<void> {
    await this.collection('gateway').updateOne({ _id: id as never }, { $set: { state } })
  }

  async gateway(id: Id): Promise<Document> {
    return (await this.collection('gateway').findOne({ _id: id as never })) ?? {}
  }

  untilPhase(id: Id, phase: string, replicas: readonly Replica[] = this.replicas): Promise<unknown> {
    return this.until(async () => expect(await this.gateway(id)).toMatchObject({ phase }), replicas)
  }

  /** How many documents of each kind have this gatewayId. */
  async children(gatewayId: Id): Promise<Record<string, number>> {
    const kinds = Object.keys(COLLECTIONS).filter((kind) => kind !== 'gateway') as (keyof typeof COLLECTIONS)[]
    const count = async (kind: keyof typeof COLLECTIONS) => [
      kind,
      await this.collection(kind).countDocuments({ gatewayId }),
    ]
    return Object.fromEntries(await Promise.all(kinds.map(count)))
  }

  /** What a client sees that reads only what is active. */
  async served(gatewayId: Id): Promise<{ routes: number; triggers: number }> {
    return {
      routes: await this.collection('route').countDocuments({ gatewayId, active: true }),
      triggers: await this.collection('trigger').countDocuments({ gatewayId, active: true }),
    }
  }

  async history(id: Id): Promise<string[]> {
    return historyOf(await this.gateway(id))
  }

  /** Names of the gateways' databases that this test's database has made. */
  async gatewayDatabases(): Promise<string[]> {
    const { databases } = await this.db.admin().listDatabases({ nameOnly: true })
    const names = databases.map(({ name }) => name).filter((name) => name.startsWith('gw_'))
    const marker = (name: string) => this.db.client.db(name).collection('Gateway').findOne()
    const ours = await Promise.all(
      names.map(async (name) => (await marker(name))?.['database'] === this.db.databaseName),
    )
    return names.filter((_, n) => ours[n])
  }

  override async end(): Promise<void> {
    await super.end()
    for (const name of await this.gatewayDatabases()) await this.db.client.db(name).dropDatabase()
  }
}

export const NOTHING = {
  trigger: 0,
  function: 0,
  stage: 0,
  runtimeDomain: 0,
  gatewayDatabase: 0,
  route: 0,
}

/** Gives each test of a file an empty world. */
export function useWorld(): World {
  const world = new World()
  // Before the database's own hook: those that are registered first run first.
  afterEach(() => world.end())
  world.database = useDatabase()
  return world
}
