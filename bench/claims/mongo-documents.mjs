import { MongoClient } from 'mongodb'
import { ensureLockIndexes } from '../../dist/lock/index.js'

export const COLLECTION = 'Thing'
const INSERT_BATCH = 2_000

/** The documents of those who keep them in MongoDB. @param server which of the addresses */
export function documentsOf(server) {
  const withThings = async (servers, space, use) => {
    const client = new MongoClient(servers[server])
    try {
      return await use(client.db(space).collection(COLLECTION))
    } finally {
      await client.close()
    }
  }
  return {
    prepare: (servers, space, count) =>
      withThings(servers, space, async (things) => {
        await ensureLockIndexes(things)
        for (let from = 0; from < count; from += INSERT_BATCH) {
          const length = Math.min(INSERT_BATCH, count - from)
          await things.insertMany(
            Array.from({ length }, (_, i) => ({ phase: 'Queued', number: from + i })),
            { ordered: false },
          )
        }
      }),
    remaining: (servers, space) => withThings(servers, space, (things) => things.countDocuments({ phase: 'Queued' })),
    doneBy: (servers, space) => withThings(servers, space, async (things) => (await things.findOne())?.doneBy),
    drop: (servers, space) => withThings(servers, space, (things) => things.drop()),
  }
}
