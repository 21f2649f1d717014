import type { Collection, Document } from 'mongodb'
import { ID_INDEX, idKey, readEach } from '../../../lock/index.js'

interface Waiting {
  readonly id: unknown
  readonly resolve: (document: Document | undefined) => void
  readonly reject: (error: unknown) => void
}

/** Reads documents again, in one batch those asked for in one turn of the event loop. One that can't be read fails alone. */
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
      const { documents, unreadable } = await readEach(this.collection, { _id: { $in: ids } }, options)
      const byId = new Map(documents.map((document) => [idKey(document['_id']), document]))
      const errors = new Map(unreadable.map(({ id, error }) => [idKey(id), error]))
      for (const { id, resolve, reject } of batch) {
        const error = errors.get(idKey(id))
        if (error) reject(error)
        else resolve(byId.get(idKey(id)))
      }
    } catch (error) {
      for (const { reject } of batch) reject(error)
    }
  }
}
