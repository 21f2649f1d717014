import type { Collection, Document } from 'mongodb'
import { ID_INDEX, idKey } from '../../lock/index.js'

interface Waiting {
  readonly id: unknown
  readonly resolve: (document: Document | undefined) => void
  readonly reject: (error: unknown) => void
}

/** Reads documents again, those asked for in one turn of the event loop together. */
export class Refresher {
  private waiting: Waiting[] = []

  constructor(
    private readonly collection: Collection,
    private readonly projection?: Document | undefined,
  ) {}

  read(id: unknown): Promise<Document | undefined> {
    return new Promise((resolve, reject) => {
      if (this.waiting.length === 0) setImmediate(() => void this.flush())
      this.waiting.push({ id, resolve, reject })
    })
  }

  private async flush(): Promise<void> {
    const batch = this.waiting
    this.waiting = []
    try {
      const ids = batch.map((one) => one.id) as never[]
      const options = this.projection ? { hint: ID_INDEX, projection: this.projection } : { hint: ID_INDEX }
      const found = await this.collection.find({ _id: { $in: ids } }, options).toArray()
      const byId = new Map(found.map((document) => [idKey(document['_id']), document]))
      for (const { id, resolve } of batch) resolve(byId.get(idKey(id)))
    } catch (error) {
      for (const { reject } of batch) reject(error)
    }
  }
}
