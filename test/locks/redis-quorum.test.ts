import { appendFile, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { Redis } from 'ioredis'
import { holderIdentity } from '../../src/locks/acquisition.js'
import { LockProviderUnavailable } from '../../src/locks/errors.js'
import { NamedLocks } from '../../src/locks/named-locks.js'
import { RedisLockStore } from '../../src/locks/providers/redis.js'
import { type QuorumOptions, RedisQuorumStore } from '../../src/locks/providers/redis-quorum.js'
import { type RedisServer, startRedis } from '../../tools/servers/redis.mjs'
import { eventually } from '../support/database.js'
import { type Entry, overlaps } from './critical-sections.js'
import { HolderProcess } from './holder-process.js'

/** What the store sends to a server; one that is cut off gets nothing. */
class Link {
  isCut = false
  constructor(readonly redis: Redis) {}
  call(command: string, ...args: string[]): Promise<unknown> {
    return this.isCut ? Promise.reject(new Error('cut off')) : this.redis.call(command, ...args)
  }
}

const key = (name: string) => `job-lock:default:${name}`

describe('a lock on three Redis servers', () => {
  let servers: RedisServer[]
  let links: Link[]
  let provider: (options?: QuorumOptions) => NamedLocks
  let name: string
  let names = 0
  beforeAll(async () => {
    servers = await Promise.all([0, 1, 2].map(() => startRedis({ persistence: 'none' })))
    links = servers.map(({ url }) => new Link(new Redis(url)))
    provider = (options = {}) => {
      const nodes = links.map((link) => new RedisLockStore(link))
      return new NamedLocks(new RedisQuorumStore(nodes, { retryDelayMs: 20, ...options }), holderIdentity('test'))
    }
  }, 240_000)
  afterAll(async () => {
    for (const { redis } of links ?? []) redis.disconnect()
    await Promise.all((servers ?? []).map((server) => server.stop()))
  })
  beforeEach(() => {
    name = `lock ${++names}`
  })
  afterEach(() => {
    for (const link of links) link.isCut = false
  })
  const config = () => ({ name, lockAtMostFor: '1h' })
  const cut = (...which: number[]) => {
    links.forEach((link, i) => {
      link.isCut = which.includes(i)
    })
  }
  const stored = () => Promise.all(links.map(({ redis }) => redis.exists(key(name))))

  test.each([0, 1, 2])('is granted, extended and freed without server %i', async (down) => {
    cut(down)
    const held = (await provider().lock(config()))!
    expect(await provider().lock(config())).toBeUndefined()
    const longer = (await held.extend('2h'))!
    expect(longer.lockUntil.getTime()).toBeGreaterThan(held.lockUntil.getTime())
    expect(await provider().find(name)).toMatchObject({ lockedBy: held.lockedBy, held: true, fence: held.fence })
    expect(await longer.unlock()).toBe(true)
    expect(await provider().lock(config())).toBeDefined()
  })

  test('is not granted without a majority, and what the minority granted is freed', async () => {
    cut(1, 2)
    const refused = provider().lock(config())
    await expect(refused).rejects.toThrow(LockProviderUnavailable)
    await expect(refused).rejects.toThrow(/expected answers from 2 of 3 Redis servers, 2 gave none: cut off/)
    expect(await stored()).toEqual([0, 0, 0])
    await expect(provider().find(name)).rejects.toThrow(LockProviderUnavailable)
    await expect(provider().list()).rejects.toThrow(LockProviderUnavailable)
  })

  test('that is held on the two servers which answer isn’t reported as lost when one of them goes, but can’t be extended', async () => {
    cut(2)
    const held = (await provider().lock(config()))!
    cut(1)
    expect((await provider().holders([name])).get(name)).toBe(held.lockedBy)
    expect(await provider().find(name)).toMatchObject({ lockedBy: held.lockedBy })
    await expect(held.extend('2h')).rejects.toThrow(LockProviderUnavailable)
    expect(await provider().lock(config())).toBeUndefined()
    cut()
    expect(await held.unlock()).toBe(true)
  })

  test('an unlock is done later on a server that was away; lockAtLeastFor stands there too', async () => {
    const held = (await provider().lock(config()))!
    cut(2)
    expect(await held.unlock()).toBe(true)
    expect(await stored()).toEqual([0, 0, 1])
    cut()
    await eventually(async () => (await stored()).join() === '0,0,0')

    const kept = (await provider().lock({ ...config(), lockAtLeastFor: '30m' }))!
    cut(2)
    expect(await kept.unlock()).toBe(true)
    cut()
    await eventually(async () => (await links[2]!.redis.get(key(name)))?.includes('~released'))
    expect(await links[2]!.redis.pttl(key(name))).toBeGreaterThan(20 * 60_000)
  })

  test('freed by an operator, it is freed later on a server that was away', async () => {
    await provider().lock(config())
    cut(2)
    expect(await provider().release(name)).toBeDefined()
    cut()
    await eventually(async () => (await stored()).join() === '0,0,0')
  })

  test('an unlock that fails is not done later: its holder may extend the lock', async () => {
    const held = (await provider().lock(config()))!
    cut(1, 2)
    await expect(held.unlock()).rejects.toThrow(LockProviderUnavailable)
    cut()
    expect(await held.extend('1h')).toBeDefined()
    await new Promise((resolve) => setTimeout(resolve, 400))
    expect(await stored()).toEqual([0, 1, 1])
  })

  test('a look that can’t tell which of two holders has it fails', async () => {
    cut(0)
    const held = (await provider().lock(config()))!
    await links[0]!.redis.set(key(name), 'other~x#1@1', 'PX', 3_600_000)
    cut(2)
    await expect(provider().holders([name])).rejects.toThrow(/expected answers from 2 of 3 Redis servers, 1 gave none/)
    cut()
    expect((await provider().holders([name])).get(name)).toBe(held.lockedBy)
  })

  test('a split vote is repeated until one has it, and given up after retryCount', async () => {
    await Promise.all(links.map(({ redis }, i) => redis.set(key(name), `other${i}~x#1@1`, 'PX', 3_600_000)))
    expect(await provider({ retryCount: 2 }).lock(config())).toBeUndefined()
    const waiting = provider({ retryCount: 1_000 }).lock(config())
    await links[0]!.redis.del(key(name))
    await links[1]!.redis.del(key(name))
    expect(await waiting).toBeDefined()
  })

  test('held by a majority, nobody votes again', async () => {
    const held = (await provider().lock(config()))!
    await links[2]!.redis.del(key(name))
    // With this pause a second try would outlast the test.
    expect(await provider({ retryDelayMs: 60_000 }).lock(config())).toBeUndefined()
    expect(await stored()).toEqual([1, 1, 0])
    expect(await held.unlock()).toBe(true)
  })

  test('fences grow, whichever majorities grant them', async () => {
    const ahead = String((Date.now() + 3_600_000) * 1_000)
    await links[0]!.redis.set(`fence:{${key(name)}}`, ahead)
    const fences: number[] = []
    for (const down of [2, 0, 1, 0, 2]) {
      cut(down)
      const held = (await provider().lock(config()))!
      fences.push(held.fence)
      expect(await held.unlock()).toBe(true)
    }
    expect(fences[0]).toBeGreaterThan(Number(ahead))
    expect(fences).toEqual([...new Set(fences)].sort((a, b) => a - b))
  })

  test('servers keep it longer than its holder by the drift of their clocks', async () => {
    const asked = { name, lockAtMostFor: '100s' }
    const held = (await provider().lock(asked))!
    const lasts = await Promise.all(links.map(({ redis }) => redis.pttl(key(name))))
    for (const ms of lasts) expect(ms).toBeGreaterThan(100_000)
    expect(held.lockUntil.getTime() - held.lockedAt.getTime()).toBeLessThan(100_100)
    const longer = (await held.extend('200s'))!
    expect(await links[0]!.redis.pttl(key(name))).toBeGreaterThan(200_000)
    expect(longer.lockUntil.getTime() - held.lockedAt.getTime()).toBeLessThan(230_000)
  })

  test('one server that forgets, or whose clock runs ahead, lets nobody else in', async () => {
    const held = (await provider().lock(config()))!
    await links[1]!.redis.flushall()
    expect(await provider({ retryCount: 1 }).lock(config())).toBeUndefined()
    expect((await held.extend('1h'))?.lockedBy).toBe(held.lockedBy)
  })

  test('what no quorum of servers prevents: one is away while it is granted, and another forgets', async () => {
    cut(2)
    const held = (await provider().lock(config()))!
    cut()
    await links[1]!.redis.flushall()
    const other = (await provider().lock(config()))!
    // Two holders: docs/caveats.md. The fence of the later one is higher, and the earlier one can't extend.
    expect(other.fence).toBeGreaterThan(held.fence)
    expect(await held.extend('1h')).toBeUndefined()
  })
})

describe('three processes fight for locks while servers are killed', () => {
  const started: (RedisServer | HolderProcess)[] = []
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'phaselock-quorum-'))
  })
  afterAll(async () => {
    for (const one of started) await ('stop' in one ? one.stop() : one.kill())
    await rm(folder, { recursive: true, force: true })
  })

  test('never two holders while a majority lives, and none without one', async () => {
    const servers = await Promise.all([0, 1, 2].map(() => startRedis({ persistence: 'always' })))
    started.push(...servers)
    const url = servers.map((server) => server.url).join(',')
    const fighters = await Promise.all(
      ['a', 'b', 'c'].map((name) => HolderProcess.start({ url, retryDelayMs: 20 }, name)),
    )
    started.unshift(...fighters)
    const log = join(folder, 'log')
    await appendFile(log, '')
    const entries = async (): Promise<Entry[]> =>
      (await readFile(log, 'utf8'))
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line))
    const entered = async () => (await entries()).filter(({ enters }) => enters).length
    const more = async (count: number) => {
      const before = await entered()
      await eventually(async () => (await entered()) >= before + count, { timeoutMs: 60_000 })
    }
    const fight = { log, names: ['x', 'y'], times: 100_000, config: { lockAtMostFor: '20s' }, patient: true }
    for (const fighter of fighters) fighter.ask('fight', fight)
    for (const server of servers) {
      await more(20)
      await server.kill9()
      await more(20)
      await server.restart()
    }
    await more(20)
    await servers[0]!.kill9()
    await servers[2]!.kill9()
    // What was granted before may still begin; after that there is silence.
    await eventually(async () => {
      const before = await entered()
      await new Promise((resolve) => setTimeout(resolve, 500))
      return (await entered()) === before
    })
    const without = await entered()
    await new Promise((resolve) => setTimeout(resolve, 1_500))
    expect(await entered()).toBe(without)
    await servers[0]!.restart()
    await more(20)
    for (const fighter of fighters) await fighter.kill()
    expect(overlaps(await entries())).toEqual([])
    expect(new Set((await entries()).map(({ who }) => who))).toEqual(new Set(['a', 'b', 'c']))
  }, 240_000)
})
