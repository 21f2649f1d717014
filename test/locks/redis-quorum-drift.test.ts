import { createHash } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { Redis } from 'ioredis'
import { holderIdentity } from '../../src/locks/acquisition.js'
import type { SimpleLock } from '../../src/locks/lock-provider.js'
import { NamedLocks } from '../../src/locks/named-locks.js'
import { RedisLockStore } from '../../src/locks/providers/redis.js'
import { RedisQuorumStore } from '../../src/locks/providers/redis-quorum.js'
import { EXTEND, FREE, TAKE } from '../../src/locks/providers/redis-scripts.js'
import { sleep, systemClock } from '../../src/time/index.js'
import { type RedisServer, startRedis } from '../../tools/servers/redis.mjs'

/** The clocks of a majority are 15 % fast, that of the third server is 10 % slow. */
const RATES = [1.15, 1.15, 0.9]

/** The arguments of each script that are durations, after its own text or digest, the number of its keys, and its keys. */
const DURATIONS = new Map([
  [TAKE, [5, 7]],
  [EXTEND, [4, 5]],
  [FREE, [4]],
])
const SCRIPTS = new Map(
  [...DURATIONS].flatMap(([script, at]) => [
    [script, at],
    [createHash('sha1').update(script).digest('hex'), at],
  ]),
)

/** A server whose clock runs so many times as fast: whatever it is to keep for a time it keeps for that part of it. */
class Drifting {
  constructor(
    private readonly redis: Redis,
    private readonly rate: number,
  ) {}
  call(command: string, ...args: string[]): Promise<unknown> {
    const durations = SCRIPTS.get(args[0] ?? '') ?? []
    const scaled = args.map((arg, i) => (durations.includes(i) ? String(Math.floor(Number(arg) / this.rate)) : arg))
    return this.redis.call(command, ...scaled)
  }
}

/**
 * The invariant: while the servers' clocks run apart by less than driftFactor, no one else is granted the lock before its holder's lockAtMostFor is
 * over by the holder's own clock, counted from before it asked.
 */
describe('a quorum of Redis servers whose clocks run apart', () => {
  let servers: RedisServer[]
  let clients: Redis[]
  let names = 0
  beforeAll(async () => {
    servers = await Promise.all(RATES.map(() => startRedis({ persistence: 'none' })))
    clients = servers.map(({ url }) => new Redis(url))
  }, 60_000)
  afterAll(async () => {
    for (const client of clients ?? []) client.disconnect()
    await Promise.all((servers ?? []).map((server) => server.stop()))
  })

  const now = () => systemClock.monotonicMs()
  const provider = (driftFactor: number) =>
    new NamedLocks(
      new RedisQuorumStore(
        clients.map((client, i) => new RedisLockStore(new Drifting(client, RATES[i]!))),
        { retryCount: 0, driftFactor },
      ),
      holderIdentity('test'),
    )

  /** Asks again and again. @returns the time that a grant took, counted from `since` */
  async function grantedAfter(
    locks: NamedLocks,
    name: string,
    since: number,
  ): Promise<{ ms: number; lock: SimpleLock }> {
    for (;;) {
      const lock = await locks.lock({ name, lockAtMostFor: '30s' })
      if (lock) return { ms: now() - since, lock }
      await sleep(2)
    }
  }

  test('each keeps a lock by its own clock', async () => {
    await provider(0).lock({ name: 'own', lockAtMostFor: '100s' })
    const lasts = await Promise.all(clients.map((client) => client.pttl('job-lock:default:own')))
    for (const [i, ms] of lasts.entries()) {
      expect(ms).toBeLessThanOrEqual(100_002 / RATES[i]!)
      expect(ms).toBeGreaterThan(90_000 / RATES[i]!)
    }
  })

  test('within the declared bound nobody else is granted it while its holder may work, extended or not', async () => {
    const [one, other] = [provider(0.2), provider(0.2)]
    for (let round = 0; round < 6; round += 1) {
      const name = `lock ${++names}`
      const firstMs = now()
      let since = firstMs
      let held = await one.lock({ name, lockAtMostFor: '600ms' })
      const waiting = grantedAfter(other, name, firstMs)
      if (held && round % 2 === 1) {
        await sleep(200)
        since = now()
        held = await held.extend('600ms')
      }
      const { ms, lock } = await waiting
      await lock.unlock()
      // On a machine so slow that it had ended before the answer came, it isn't held.
      if (!held) continue
      expect(firstMs + ms - since).toBeGreaterThanOrEqual(600)
      expect(lock.fence).toBeGreaterThan(held.fence)
    }
  }, 60_000)

  test('beyond it there are two holders for a while: the later one has the higher fence, and the first cannot extend', async () => {
    const [one, other] = [provider(0), provider(0)]
    for (let round = 0; round < 5; round += 1) {
      const name = `lock ${++names}`
      const since = now()
      const held = await one.lock({ name, lockAtMostFor: '4s' })
      if (!held) continue
      const { ms, lock } = await grantedAfter(other, name, since)
      expect(lock.fence).toBeGreaterThan(held.fence)
      expect(await held.extend('4s')).toBeUndefined()
      await lock.unlock()
      // 3.5 s by a fast majority; a slow machine may take another round.
      if (ms < 4_000) return
    }
    throw new Error('expected a second holder before the first one had to stop')
  }, 60_000)
})
