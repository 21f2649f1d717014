/** Runs one driver call at a time for mongosh.ts, which waits for the reply without an event loop, as mongosh's lines do. */

import { workerData } from 'node:worker_threads'
import { BSON, MongoClient } from 'mongodb'

const { uri, database, port, signal } = workerData
const client = new MongoClient(uri)
const db = client.db(database)

port.on('message', async (request) => {
  port.postMessage(await answer(BSON.deserialize(request, { promoteBuffers: true })))
  Atomics.store(signal, 0, 1)
  Atomics.notify(signal, 0)
})

async function answer({ collection, method, args, chain }) {
  try {
    let value = db.collection(collection)[method](...args)
    for (const { name, args: more } of chain) value = value[name](...more)
    value = await (typeof value.toArray === 'function' && !chain.some(({ name }) => name === 'explain')
      ? value.toArray()
      : value)
    return BSON.serialize({ value }, { ignoreUndefined: true })
  } catch (error) {
    return BSON.serialize({ error: String(error) })
  }
}
