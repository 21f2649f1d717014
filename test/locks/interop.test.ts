/**
 * The real ShedLock, a Java program, and ours on the same locks. Java tells between which two moments of this machine's clock
 * it was granted a lock (`since`, `entered`); servers and programs share that clock.
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import type { OperableLockProvider } from '../../src/locks/lock-provider.js'
import { eventually } from '../support/database.js'
import { type Entry, overlaps, tooEarly } from './critical-sections.js'
import { HolderProcess } from './holder-process.js'
import { type Kind, type ProviderUnderTest, UNDER_TEST } from './providers.js'
import { NoShedLock, shedLockClassPath, startShedLock } from './shedlock.js'

const TIMES = 1_000
const NAMES = Array.from({ length: 8 }, (_, i) => `fought for ${i}`)
/** Redis and the clocks of two programs count in whole milliseconds. */
const ROUNDING_MS = 2

interface Moments {
  since: number
  entered: number
}

/** In CI it runs; elsewhere it says why it doesn't. */
const classPath = await shedLockClassPath().catch((error) => {
  if (!(error instanceof NoShedLock) || process.env['CI']) throw error
  process.stderr.write(`skipped: ${error.message}\n`)
  return undefined
})
const kinds = ['mongodb', 'postgres', 'mysql', 'redis'] as const satisfies Kind[]

describe.each(kinds)('Java and Node share locks in %s', (kind) => {
  const testWithJava = classPath === undefined ? test.skip : test
  let under: ProviderUnderTest
  let ours: OperableLockProvider
  let java: HolderProcess
  let started: HolderProcess[] = []

  beforeAll(async () => {
    if (classPath === undefined) return
    under = await UNDER_TEST[kind]()
    ours = under.provider()
    await ours.migrate()
    java = await startShedLock(classPath, under.options['url']!)
  }, 240_000)
  afterAll(async () => {
    await java?.kill()
    await under?.close()
  })
  afterEach(async () => {
    await Promise.all(started.map((one) => one.kill()))
    started = []
  })

  const asked = (name: string, lockAtMostFor: number, lockAtLeastFor = 0) => ({ name, lockAtMostFor, lockAtLeastFor })
  const javaTakes = (name: string): Promise<Moments> =>
    eventually(
      async () => (await java.answer<Moments | null>('lock', asked(name, 3_600_000))) ?? false,
    ) as Promise<Moments>
  const weTake = async (name: string, lockAtMostFor = '1h', lockAtLeastFor = '0s') =>
    await eventually(
      async () => (await ours.lock({ name, lockAtMostFor, lockAtLeastFor })) ?? Promise.reject(new Error('still held')),
    )

  testWithJava('each refuses what the other holds, and our fence grows across its turns', async () => {
    const name = 'in turn'
    const first = await weTake(name)
    expect(await java.answer('lock', asked(name, 1_000))).toBeNull()
    await first.unlock()
    await javaTakes(name)
    expect(await ours.lock({ name, lockAtMostFor: '1h' })).toBeUndefined()
    expect(await ours.find(name)).toMatchObject({
      held: true,
      lockedAt: expect.any(Date),
      lockedBy: expect.any(String),
    })
    expect(await first.extend('1h')).toBeUndefined()
    expect(await first.unlock()).toBe(false)
    expect(await ours.lock({ name, lockAtMostFor: '1h' })).toBeUndefined()
    await java.answer('unlock')
    expect((await weTake(name)).fence).toBeGreaterThan(first.fence)
  })

  testWithJava("each honours the other's lockAtLeastFor", async () => {
    const ourTurn = await weTake('at least', '1h', '300ms')
    await ourTurn.unlock()
    const javas = await javaTakes('at least')
    expect(javas.entered).toBeGreaterThanOrEqual(ourTurn.lockedAt.getTime() + 300 - ROUNDING_MS)

    const first = await java.answer<Moments>('lock', asked('at least 2', 3_600_000, 300))
    await java.answer('unlock')
    const next = await weTake('at least 2')
    expect(next.lockedAt.getTime()).toBeGreaterThanOrEqual(first.since + 300 - ROUNDING_MS)
  })

  testWithJava('a lock that its holder never unlocks ends for the other after lockAtMostFor, not before', async () => {
    const dead = await weTake('expiry', '300ms')
    const javas = await javaTakes('expiry')
    expect(javas.entered).toBeGreaterThanOrEqual(dead.lockUntil.getTime() - ROUNDING_MS)
    expect(await dead.unlock()).toBe(false)
    expect(await ours.lock({ name: 'expiry', lockAtMostFor: '1h' })).toBeUndefined()

    const first = await java.answer<Moments>('lock', asked('expiry 2', 300))
    const next = await weTake('expiry 2')
    expect(next.lockedAt.getTime()).toBeGreaterThanOrEqual(first.since + 300 - ROUNDING_MS)
  })

  testWithJava(
    `${TIMES} acquisitions each: nobody is within while another is`,
    async () => {
      const folder = await mkdtemp(join(tmpdir(), 'phaselock-java-'))
      try {
        const node = await HolderProcess.start(under.options, 'node')
        started.push(node)
        const log = join(folder, 'log')
        java.ask('fight', { log, names: NAMES, times: TIMES, lockAtMostFor: 600_000, lockAtLeastFor: 4 })
        node.ask('fight', { log, names: NAMES, times: TIMES, config: { lockAtMostFor: '10m', lockAtLeastFor: '4ms' } })
        await Promise.all([java.answered('fight', 150_000), node.answered('fight', 150_000)])
        const lines = (await readFile(log, 'utf8')).trim().split('\n')
        const entries = lines.map((line) => JSON.parse(line) as Entry)
        for (const who of ['java', 'node'])
          expect(entries.filter((entry) => entry.who === who && entry.enters)).toHaveLength(TIMES)
        expect(overlaps(entries)).toEqual([])
        expect(tooEarly(entries, 4 - ROUNDING_MS)).toEqual([])
      } finally {
        await rm(folder, { recursive: true })
      }
    },
    400_000,
  )

  if (kind === 'postgres') {
    const inZone = async (zone: string, time: 'db' | 'jvm' | 'utc') => {
      const one = await startShedLock(classPath!, under.options['url']!, { zone, time })
      started.push(one)
      return one
    }

    testWithJava.each(['Asia/Seoul', 'America/Los_Angeles'])(
      'in %s Java excludes us and is excluded by usingDbTime(), and by withTimeZone(UTC)',
      async (zone) => {
        for (const time of ['db', 'utc'] as const) {
          const there = await inZone(zone, time)
          const [ourName, javasName] = [`ours, ${zone} ${time}`, `Java's, ${zone} ${time}`]
          const held = await weTake(ourName)
          expect(await there.answer('lock', asked(ourName, 1_000))).toBeNull()
          expect(await held.unlock()).toBe(true)
          expect(await there.answer('lock', asked(javasName, 3_600_000))).not.toBeNull()
          expect(await ours.lock({ name: javasName, lockAtMostFor: '1h' })).toBeUndefined()
        }
      },
    )

    testWithJava('what docs/named-locks.md says: without either, Java east of UTC takes what we hold', async () => {
      const seoul = await inZone('Asia/Seoul', 'jvm')
      const held = await weTake('taken in the east')
      expect(await seoul.answer('lock', asked(held.name, 1_000))).not.toBeNull()
      // Ours notices, and touches nothing.
      expect(await held.extend('1h')).toBeUndefined()
    })

    testWithJava('what docs/named-locks.md says: without either, we take what Java west of UTC holds', async () => {
      const there = await inZone('America/Los_Angeles', 'jvm')
      const name = 'taken from the west'
      expect(await there.answer('lock', asked(name, 3_600_000))).not.toBeNull()
      expect(await ours.lock({ name, lockAtMostFor: '1h' })).toMatchObject({ name })
    })
  }

  if (kind === 'mongodb') {
    testWithJava(
      "what docs/caveats.md says: an expired Java holder's unlock ends our lock, and ours notices",
      async () => {
        const name = 'freed by Java'
        await java.answer('lock', asked(name, 200))
        const held = await weTake(name)
        await java.answer('unlock')
        expect(await ours.find(name)).toMatchObject({ lockedBy: held.lockedBy, held: false })
        expect(await held.extend('1h')).toBeUndefined()
        const next = await weTake(name)
        expect(next.fence).toBeGreaterThan(held.fence)
        expect(await held.unlock()).toBe(false)
      },
    )
  }

  if (kind === 'mongodb') {
    testWithJava("ours is ShedLock's own document and a fence", async () => {
      const { lockedBy, lockedAt, lockUntil, fence } = await weTake('looked at')
      const client = await new MongoClient(under.options['url']!).connect()
      const stored = await client.db().collection<{ _id: string }>('shedLock').findOne({ _id: 'looked at' })
      await client.close()
      expect(stored).toEqual({ _id: 'looked at', lockedBy, lockedAt, lockUntil, fence })
    })
  }
})
