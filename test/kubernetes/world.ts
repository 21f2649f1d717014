import { afterEach } from '@jest/globals'
import { type Collection, type Document, ObjectId } from 'mongodb'
import { INSTANCE_COLLECTION, instanceLifecycles } from 'phaselock-tasks'
import { Replica } from '../../src/index.js'
import { Cluster, singleRegion } from '../../src/kubernetes/index.js'
import { runtimeDomainLifecycles } from '../../src/tasks/index.js'
import { eventually, type TestDatabase, useDatabase } from '../support/database.js'

const DOMAIN_COLLECTION = 'RuntimeDomain'
const FAR = new Date('9999-01-01')
/** Certificates and pods take a moment, and a busy machine many. */
const PATIENCE_MS = 240_000

export interface Site {
  /** The text of the replica's. */
  readonly kubeconfig: string
  readonly namespace: string
  readonly issuer: { readonly name: string; readonly kind: 'ClusterIssuer' }
}

/** Domains and instances in a database of the test's own, and a replica that works on them in one namespace. */
export class World {
  private replica: Replica | undefined
  private cluster: Cluster | undefined

  constructor(private readonly database: TestDatabase) {}

  get domains(): Collection<Document> {
    return this.database.db.collection(DOMAIN_COLLECTION)
  }

  get instances(): Collection<Document> {
    return this.database.db.collection(INSTANCE_COLLECTION)
  }

  /** A replica: `until` ticks it, or `start` lets it work by itself. */
  employ({ kubeconfig, namespace, issuer }: Site): void {
    const { db } = this.database
    this.cluster = Cluster.of({ name: 'test', kubeconfig, requestTimeout: '3s' })
    const gateway = { domain: 'test.example.org', tls: { enabled: true, issuer } }
    const regions = singleRegion('test', this.cluster, { namespace, gateway })
    const lifecycles = [...runtimeDomainLifecycles({ db, regions }).all, ...instanceLifecycles({ db, regions }).all]
    this.replica = new Replica({ db, lifecycles, name: 'r1' })
  }

  async start(): Promise<void> {
    await this.replica!.start()
  }

  /** A domain that needs a certificate. */
  async insertDomain(fields: Document = {}): Promise<ObjectId> {
    const _id = new ObjectId()
    const names = { host: `${_id}.test.example.org`, customDomain: `www.${_id}.example` }
    await this.domains.insertOne({ _id, phase: 'Creating', service: { name: 'shop', port: 80 }, ...names, ...fields })
    return _id
  }

  async insertInstance(): Promise<ObjectId> {
    const _id = new ObjectId()
    await this.instances.insertOne({ _id, phase: 'Starting', image: 'shop:1', ports: [{ port: 80 }] })
    return _id
  }

  /** The document; of one that is gone nothing. */
  async document(id: ObjectId): Promise<Document> {
    const found = await Promise.all([this.domains, this.instances].map((collection) => collection.findOne({ _id: id })))
    return found.find((document) => document !== null) ?? {}
  }

  /** All that are there. */
  async documents(): Promise<Document[]> {
    return (await Promise.all([this.domains, this.instances].map((all) => all.find().toArray()))).flat()
  }

  async want(id: ObjectId, state: string): Promise<void> {
    for (const collection of [this.domains, this.instances])
      await collection.updateOne({ _id: id }, { $set: { state } })
  }

  /** The replica takes turns, and nobody waits for a pause, until the check passes. */
  until(check: () => unknown): Promise<unknown> {
    const turn = async () => {
      for (const collection of [this.domains, this.instances]) await this.endPauses(collection)
      await this.replica!.runOnce()
      await check()
    }
    return eventually(turn, { timeoutMs: PATIENCE_MS, everyMs: 50 })
  }

  /** Documents that sleep are due now; those that are parked stay so. */
  private async endPauses(collection: Collection<Document>): Promise<void> {
    await collection.updateMany({ lockedBy: null, lockedAt: { $lt: FAR } }, { $set: { lockedAt: new Date(0) } })
  }

  async end(): Promise<void> {
    await this.replica?.stop()
    this.cluster?.close()
    this.replica = undefined
  }
}

/** Gives each test of the enclosing `describe` a world. */
export function useWorld(): World {
  let world: World | undefined
  // Before the database's own hook: those that are registered first run first.
  afterEach(() => world?.end())
  world = new World(useDatabase())
  return world
}
