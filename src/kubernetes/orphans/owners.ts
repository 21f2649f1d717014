import type { Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { idKey, LIFECYCLES_COLLECTION, readLockTimeouts } from '../../lock/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import type { KubernetesObject } from '../api/objects.js'
import { labelValue, ownerOf } from '../cluster/ownership.js'

/** The document that an object claims to belong to, in a lifecycle that is known here. */
export interface OwnerDocument {
  readonly model: LifecycleModel
  readonly id: unknown
}

/** The owner of an object: a document; a document of another database; or a lifecycle that isn't known here. Undefined: no document at all. */
export type Ownership =
  | OwnerDocument
  | { readonly database: string; readonly model?: undefined; readonly lifecycle?: undefined }
  | { readonly lifecycle: string; readonly model?: undefined; readonly database?: undefined }
  | undefined

/** The current state of a lifecycle's collection. */
export interface Presence {
  /** The server's time. */
  readonly now: Date
  /** The phase of each existing document, by the key of its `_id`. */
  readonly phases: ReadonlyMap<string, unknown>
  /** True if the collection has no document at all. */
  readonly isEmpty: boolean
  /** The collection that replicas work on under this lifecycle's name; undefined: no replica ever did. */
  readonly registeredIn: unknown
}

const IDS_AT_ONCE = 1_000

/** The documents of one database that objects may belong to. */
export class Owners {
  private readonly byLabel: ReadonlyMap<string, LifecycleModel>

  constructor(
    private readonly db: Db,
    models: readonly LifecycleModel[],
  ) {
    this.byLabel = new Map(models.map((model) => [labelValue(model.name), model]))
  }

  of(object: KubernetesObject): Ownership {
    const owner = ownerOf(object)
    if (!owner) return undefined
    if (owner.database !== this.db.databaseName) return { database: owner.database }
    const model = this.byLabel.get(owner.lifecycle)
    return model ? { model, id: owner.id } : { lifecycle: owner.lifecycle }
  }

  /** Finds the existing ones among these documents. Reads from the primary, whatever the connection prefers. */
  async presence(model: LifecycleModel, ids: readonly unknown[]): Promise<Presence> {
    const documents = protocolCollection<Document>(this.db, model.collection)
    const phases = new Map<string, unknown>()
    for (let from = 0; from < ids.length; from += IDS_AT_ONCE) {
      const some = ids.slice(from, from + IDS_AT_ONCE) as never[]
      const options = { projection: { phase: 1 }, readPreference: 'primary' } as const
      for (const { _id, phase } of await documents.find({ _id: { $in: some } }, options).toArray())
        phases.set(idKey(_id), phase)
    }
    // Returns one row even for a collection that doesn't exist.
    const facet = { $facet: { some: [{ $project: { _id: 1 } }] } }
    const state = [{ $limit: 1 }, facet, { $project: { some: 1, now: '$$NOW' } }]
    const [row] = await documents
      .aggregate<{ some: unknown[]; now: Date }>(state, { readPreference: 'primary' })
      .toArray()
    const lifecycles = protocolCollection<{ _id: string } & Document>(this.db, LIFECYCLES_COLLECTION)
    const registered = await lifecycles.findOne({ _id: model.name }, { projection: { collection: 1 } })
    return { now: row!.now, phases, isEmpty: row!.some.length === 0, registeredIn: registered?.['collection'] }
  }

  /** The longest possible lease of this lifecycle. */
  async leaseMs(model: LifecycleModel): Promise<number> {
    const inForce = (await readLockTimeouts(this.db, [model.name])).get(model.name)
    return Math.max(inForce?.dueMs ?? 0, inForce?.leaseMs ?? 0, model.settings.lockTimeoutMs)
  }
}
