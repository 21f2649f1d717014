import type { Collection, Document } from 'mongodb'
import { ANSWERED, type Batch, Batcher } from '../../../concurrency/index.js'
import { ID_INDEX, idKey, readEach } from '../../../lock/index.js'

type Found = Document | undefined

/** Reads documents again, all of one turn of the event loop in one batch. One that can't be read fails alone. */
export class Refresher {
  private readonly reads = new Batcher<unknown, Found>((ids, batch) => this.readAll(ids, batch))

  constructor(
    private readonly collection: Collection,
    private readonly progress: string,
    private readonly projection?: Document | undefined,
  ) {}

  read(id: unknown): Promise<Found> {
    return this.reads.ask(id)
  }

  private async readAll(ids: readonly unknown[], { asked }: Batch<unknown, Found>): Promise<typeof ANSWERED> {
    const options = { hint: ID_INDEX, ...(this.projection && { projection: this.projection }) }
    const { documents, unreadable } = await readEach(
      this.collection,
      { _id: { $in: [...ids] as never[] } },
      options,
      this.progress,
    )
    const found = new Map(documents.map((one) => [idKey(one['_id']), one]))
    const failed = new Map(unreadable.map(({ id, error }) => [idKey(id), error]))
    for (const { value, resolve, reject } of asked) {
      const error = failed.get(idKey(value))
      if (error) reject(error)
      else resolve(found.get(idKey(value)))
    }
    return ANSWERED
  }
}
