import { MongoClient } from 'mongodb'
import { Replica, type RunnableLifecycle, silentLogger } from '../../src/index.js'
import type { useDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'
import { TcpProxy } from '../support/tcp-proxy.js'

/**
 * Replicas each behind a connection of its own that ends for good after a random command, before or after that is executed: for the database
 * that is a crash there; the test has another one take its place. To be called in a `describe`.
 */
export function crashingReplicas(database: ReturnType<typeof useDatabase>) {
  const ends = useEnds()

  return async (random: () => number, lifecycle: RunnableLifecycle) => {
    const proxy = await TcpProxy.start(database.uri)
    ends.push(() => proxy.stop())
    const client = await new MongoClient(proxy.uri, { serverSelectionTimeoutMS: 2_000, retryWrites: false }).connect()
    ends.push(() => client.close(true))
    const replica = new Replica({
      ...{ db: client.db(database.db.databaseName), lifecycles: [lifecycle], logger: silentLogger },
      ...{ doorbell: 'off', grace: '0s' },
    })
    await replica.prepare()
    const crashed = Promise.withResolvers<void>()
    let left = 3 + Math.floor(random() * 25)
    const isLast = () => {
      left -= 1
      if (left === 0) setTimeout(() => crash(), random() * 5)
      return left === 0
    }
    const crash = () => {
      proxy.refuse()
      crashed.resolve()
    }
    if (random() < 0.5) proxy.cutBefore(isLast)
    else proxy.cutAfter(isLast)
    ends.push(() => replica.stop())
    return { replica, crashed: crashed.promise, isUp: () => left > 0 }
  }
}
