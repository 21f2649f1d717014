import type { Collection, Document } from 'mongodb'
import { ID_INDEX, idKey, readEach } from '../../../lock/index.js'

interface Waiting {
  readonly id: unknown
  readonly resolve: (document: Document | undefined) => void
  readonly reject: (error: unknown) => void
}

/** Reads documents again, all of one turn of the event loop in one batch. One that can't be read fails alone. */
export class Refresher {
  private waiting: Waiting[] = []

  constructor(
    private readonly collection: Collection,
    private readonly progress: string,
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
      const filter = { _id: { $in: ids } }
      const { documents, unreadable } = await readEach(this.collection, filter, options, this.progress)
      const failed = unreadable.map(({ id, error }) => [idKey(id), error] as const)
      const found = new Map([...documents.map((one) => [idKey(one['_id']), one] as const), ...failed])
      for (const { id, resolve, reject } of batch) {
        const one = found.get(idKey(id))
        if (one instanceof Error) reject(one)
        else resolve(one)
      }
    } catch (error) {
      for (const { reject } of batch) reject(error)
    }
  }
}
