import { type Document, ObjectId } from 'mongodb'
import { lifecycleOf } from '../../../src/index.js'
import { type Cluster, type KubernetesObject, Orphans, type OrphansOptions } from '../../../src/kubernetes/index.js'
import type { TestDatabase } from '../../support/database.js'
import { holdThing } from '../support/holds.js'

/** The lifecycle of `holdThing`, and of the command line's fixture. */
const { model } = lifecycleOf<{ _id: string; state?: 'Deleted' }>().define({
  name: 'thing',
  collection: 'Thing',
  phases: {
    Creating: { next: ['Created'] },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true },
  },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
  // What is younger than a lease and 5 s is never removed.
  lockTimeout: '1s',
})

/** Documents of `Thing` with a ConfigMap each, in one namespace. */
export class OrphansWorld {
  constructor(
    private readonly database: TestDatabase,
    readonly namespace: string,
  ) {}

  get things() {
    return this.database.db.collection<Document & { _id: string }>('Thing')
  }

  map(name: string, metadata: object = {}): KubernetesObject {
    return { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace: this.namespace, ...metadata } }
  }

  /** A step of a document makes its object; then the document is in this phase. */
  async make(cluster: Cluster, id: string, phase: string, fence = 1): Promise<KubernetesObject> {
    const held = await holdThing({ cluster, db: this.database.db }, id, fence)
    const made = await held.ensure(this.map(id))
    await this.things.updateOne({ _id: id }, { $set: { phase } })
    return made
  }

  /**
   * A late step makes its object after the document has gone, and can't take it back: as if it had died right then.
   * @param cluster of an account without the right to delete
   */
  async leave(cluster: Cluster, id: string): Promise<void> {
    const held = await holdThing({ cluster, db: this.database.db }, id)
    await this.things.deleteOne({ _id: id })
    await held.ensure(this.map(id)).catch(() => undefined)
  }

  sweep(options: Partial<OrphansOptions> = {}): Orphans {
    return new Orphans({ db: this.database.db, models: [model], olderThanMs: 0, ...options })
  }

  /** So that the collection isn't empty. */
  async insertAnother(): Promise<void> {
    await this.things.insertOne({ _id: new ObjectId().toHexString(), phase: 'Created' })
  }
}
