import type { Collection, Document } from 'mongodb'

/** What a command of the product would do to the documents that it matches; no update: it deletes them. */
export interface Write {
  readonly filter: Document
  readonly update?: Document | Document[]
}

/**
 * The writes that a function of the product sends to a collection, for those that don't hand out their filter and update:
 * each counts as having matched nothing.
 * @param found what its reads bring
 */
export async function captured(
  use: (collection: Collection) => Promise<unknown>,
  found: readonly Document[] = [],
): Promise<Write[]> {
  const writes: Write[] = []
  const read = () => ({ toArray: async () => [...found] })
  const write = async (filter: Document, update?: Document | Document[]) => {
    writes.push(update && !('hint' in update) ? { filter, update } : { filter })
    return { matchedCount: 0, modifiedCount: 0, deletedCount: 0 }
  }
  const refuse = (name: string) => async () => {
    throw new Error(`expected a command that the model knows, got ${name}`)
  }
  const commands = {
    find: () => {
      const cursor = new Proxy(read(), { get: (target, name) => (name === 'toArray' ? target.toArray : () => cursor) })
      return cursor
    },
    aggregate: read,
    findOne: async () => found[0] ?? null,
    updateOne: write,
    updateMany: write,
    findOneAndUpdate: async (filter: Document, update: Document) => void (await write(filter, update)),
    deleteMany: async (filter: Document) => write(filter),
    bulkWrite: async (operations: { updateOne?: Write; updateMany?: Write }[]) => {
      for (const { updateOne, updateMany } of operations) {
        const one = (updateOne ?? updateMany)!
        await write(one.filter, one.update as Document)
      }
      return { matchedCount: 0 }
    },
    insertMany: refuse('insertMany'),
    distinct: refuse('distinct'),
    countDocuments: refuse('countDocuments'),
    indexes: refuse('indexes'),
  }
  const collection = (): object => ({ ...commands, db: { collection } })
  await use(collection() as Collection)
  return writes
}
