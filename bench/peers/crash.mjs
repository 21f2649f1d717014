import { setTimeout as sleep } from 'node:timers/promises'
import { rounded } from '../statistics.mjs'
import { newSpace } from './backlog.mjs'
import { startWorker } from './worker.mjs'

/**
 * How long until a job whose worker is killed (`kill -9`) while it runs begins again on the other worker, in seconds, or
 * null when it doesn't within `limitSeconds`. All peers wait at the same time: nobody has anything to do.
 */
export function crash(peers, addresses, limitSeconds) {
  return Promise.all(peers.map((peer) => crashOf(peer, addresses, limitSeconds)))
}

async function crashOf({ name, peer }, addresses, limitSeconds) {
  const space = newSpace()
  const producer = await peer.open(addresses, space, 'defaults', { produces: true })
  const workers = [startWorker(name, 'defaults'), startWorker(name, 'defaults')]
  const [first, second] = workers
  const begin = async (worker) => {
    await worker.ask('open', { servers: addresses, space, kind: 'hang', jobs: 1 })
    await worker.ask('start')
  }
  try {
    await begin(first)
    await producer.insertOne({ id: 0 })
    await first.hung
    await begin(second)
    const killedMs = Number(process.hrtime.bigint()) / 1e6
    await first.kill()
    const giveUp = new AbortController()
    const limit = sleep(limitSeconds * 1_000, undefined, { signal: giveUp.signal }).catch(() => undefined)
    const again = await Promise.race([second.hung, limit])
    giveUp.abort()
    return again ? rounded((again.atMs - killedMs) / 1_000, 1) : null
  } finally {
    for (const worker of workers) await worker.kill()
    await producer.drop().catch(() => undefined)
    await producer.close()
  }
}
