/**
 * What every lock provider promises, run on each with its real server. The invariants:
 * 1. Never two holders of one name within their lockAtMostFor.
 * 2. An acquisition that has expired, was released, freed or re-entered by another touches nothing any more.
 * 3. A lock isn't granted before lockedAt + lockAtLeastFor, however early its holder unlocked.
 * 4. Time is the server's: every instant that comes back, and every comparison.
 * 5. Fences of one name grow strictly, through expiry, release, reentry and the loss of the record.
 * 6. A server that doesn't answer grants nothing, and says so by LockProviderUnavailable (server-down.test.ts).
 */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { InvalidLockConfig, StaleLockHandle } from '../../src/locks/errors.js'
import { LockExecutor } from '../../src/locks/lock-executor.js'
import type { SimpleLock } from '../../src/locks/lock-provider.js'
import { sleep } from '../../src/time/index.js'
import { eventually } from '../support/database.js'
import { gate } from '../support/thing.js'
import { type Kind, type ProviderUnderTest, UNDER_TEST } from './providers.js'

/** Redis keeps what is left, and tells it in whole milliseconds. */
const aboutSame = (a: Date, b: Date) => Math.abs(a.getTime() - b.getTime()) < 1_000

describe.each(Object.keys(UNDER_TEST) as Kind[])('locks in %s', (kind) => {
  let under: ProviderUnderTest
  let names = 0
  /** A lock that no other test uses. */
  const fresh = (more: object = {}) => ({ name: `lock ${++names}`, lockAtMostFor: '1h', ...more })

  beforeAll(async () => {
    under = await UNDER_TEST[kind]()
  }, 240_000)
  afterAll(async () => await under?.close())

  /** Waits until the lock is free, and takes it. */
  const takenAfterwards = (config: ReturnType<typeof fresh>): Promise<SimpleLock> =>
    eventually(async () => (await under.provider('next').lock(config)) ?? Promise.reject(new Error('still held')))

  test('one of two has it; unlocked, the other', async () => {
    const [a, b] = [under.provider('a'), under.provider('b')]
    const config = fresh()
    const held = (await a.lock(config))!
    expect(held).toMatchObject({ name: config.name, lockedBy: expect.stringMatching(/^a~[0-9a-f]{6}#[0-9a-f]{16}$/) })
    const lastsMs = held.lockUntil.getTime() - held.lockedAt.getTime()
    expect(Math.round(lastsMs / 60_000)).toBe(60)
    expect(await b.lock(config)).toBeUndefined()
    expect(await a.lock(config)).toBeUndefined()
    expect(await held.unlock()).toBe(true)
    const next = (await b.lock(config))!
    expect(next.fence).toBeGreaterThan(held.fence)
    expect(next.lockedAt.getTime()).toBeGreaterThanOrEqual(held.lockedAt.getTime())
  })

  test('of many who want a new name at the same time one gets it, and so for a known one', async () => {
    const config = fresh()
    const providers = Array.from({ length: 12 }, (_, i) => under.provider(`p${i}`))
    for (let round = 0; round < 3; round++) {
      const granted = (await Promise.all(providers.map((one) => one.lock(config)))).filter((lock) => lock !== undefined)
      expect(granted).toHaveLength(1)
      expect(await granted[0]!.unlock()).toBe(true)
    }
  })

  test('an expired lock is granted again, and its holder touches nothing', async () => {
    const config = fresh({ lockAtMostFor: '60ms', lockAtLeastFor: '60ms' })
    const expired = await takenAfterwards(config)
    const next = await takenAfterwards({ ...config, lockAtMostFor: '1h' })
    expect(next.fence).toBeGreaterThan(expired.fence)
    expect(next.lockedAt.getTime()).toBeGreaterThanOrEqual(expired.lockUntil.getTime())
    expect(await expired.extend('2h')).toBeUndefined()
    expect(await expired.unlock()).toBe(false)
    const found = await under.provider().find(config.name)
    expect(found).toMatchObject({ lockedBy: next.lockedBy, held: true })
    expect(aboutSame(found!.lockUntil!, next.lockUntil)).toBe(true)
    expect(await next.unlock()).toBe(true)
  })

  test('an expired lock that nobody took can be neither unlocked nor extended', async () => {
    const config = fresh({ lockAtMostFor: '60ms' })
    const expired = await takenAfterwards(config)
    await eventually(async () => (await under.provider().find(config.name))?.held !== true)
    expect(await expired.extend('2h')).toBeUndefined()
    expect(await expired.unlock()).toBe(false)
    expect((await under.provider().find(config.name))?.held ?? false).toBe(false)
  })

  test('a lock that was unlocked early is kept, and what its holder does after that changes nothing', async () => {
    const config = fresh({ lockAtLeastFor: '1h' })
    const held = (await under.provider('quick').lock(config))!
    expect(await held.unlock()).toBe(true)
    expect(await under.provider().lock(config)).toBeUndefined()
    const kept = await under.provider().find(config.name)
    expect(kept).toMatchObject({ held: true, released: true, lockedAt: held.lockedAt })
    expect(await held.extend('2h')).toBeUndefined()
    expect(await held.unlock()).toBe(false)
    const still = await under.provider().find(config.name)
    expect(still).toEqual({ ...kept, lockUntil: expect.any(Date) })
    expect(aboutSame(still!.lockUntil!, kept!.lockUntil!)).toBe(true)
  })

  test('lockAtLeastFor is honoured to its end', async () => {
    const config = fresh({ lockAtLeastFor: '200ms' })
    const held = (await under.provider('quick').lock(config))!
    expect(await held.unlock()).toBe(true)
    const next = await takenAfterwards(config)
    expect(next.lockedAt.getTime()).toBeGreaterThanOrEqual(held.lockedAt.getTime() + 200)
  })

  test("unlocked after the server's clock stepped back, it is kept for lockAtLeastFor from now at most", async () => {
    const [free, kept] = [fresh(), fresh({ lockAtLeastFor: '1m' })]
    for (const config of [free, kept]) {
      const held = (await under.provider('early').lock(config))!
      await under.clockSteppedBack(config.name, 3_600_000)
      expect(await held.unlock()).toBe(true)
    }
    const next = (await under.provider('next').lock(free))!
    expect(next).toBeDefined()
    const { lockUntil, released } = (await under.provider().find(kept.name))!
    expect(released).toBe(true)
    expect(lockUntil!.getTime() - next.lockedAt.getTime()).toBeLessThanOrEqual(61_000)
  })

  test('extend moves the end, and lockAtLeastFor stays counted from when it was locked', async () => {
    const config = fresh({ lockAtMostFor: '5m', lockAtLeastFor: '100ms' })
    const held = (await under.provider('long').lock(config))!
    const longer = (await held.extend('PT1H'))!
    expect(longer).toMatchObject({ lockedBy: held.lockedBy, fence: held.fence, lockedAt: held.lockedAt })
    expect(aboutSame((await under.provider().find(config.name))!.lockUntil!, longer.lockUntil)).toBe(true)
    expect(longer.lockUntil.getTime() - held.lockUntil.getTime()).toBeGreaterThan(3_000_000)
    expect(await under.provider().lock(config)).toBeUndefined()
    expect(await longer.unlock()).toBe(true)
    const next = await takenAfterwards(config)
    expect(next.lockedAt.getTime()).toBeGreaterThanOrEqual(held.lockedAt.getTime() + 100)
    await expect(next.extend('1s', '2s')).rejects.toThrow(InvalidLockConfig)
  })

  test('an extension to less than lockAtLeastFor keeps it until that is over, unlocked or not', async () => {
    const held = (await under.provider().lock(fresh({ lockAtLeastFor: '1h' })))!
    const shorter = (await held.extend('50ms'))!
    expect(shorter.lockUntil.getTime()).toBeGreaterThanOrEqual(held.lockedAt.getTime() + 3_600_000 - 2)
    expect(aboutSame(shorter.lockUntil, held.lockUntil)).toBe(true)
    await sleep(60)
    expect(await under.provider().lock({ name: held.name, lockAtMostFor: '1h' })).toBeUndefined()
    const again = (await shorter.extend('1m'))!
    expect(aboutSame(again.lockUntil, held.lockUntil)).toBe(true)
    expect(await again.unlock()).toBe(true)
    const kept = await under.provider().find(held.name)
    expect(kept).toMatchObject({ held: true, released: true })
    expect(aboutSame(kept!.lockUntil!, held.lockUntil)).toBe(true)
  })

  test('an extension may give another lockAtLeastFor', async () => {
    const held = (await under.provider().lock(fresh({ lockAtLeastFor: '1h' })))!
    await (await held.extend('200ms', '0s'))!.unlock()
    await takenAfterwards({ name: held.name, lockAtMostFor: '1h' })
  })

  test('a handle that was extended is refused; the one that the extension gave holds the lock', async () => {
    const held = (await under.provider().lock(fresh()))!
    const longer = (await held.extend('2h'))!
    await expect(held.unlock()).rejects.toThrow(StaleLockHandle)
    await expect(held.extend('3h')).rejects.toThrow(
      `lock '${held.name}': expected the handle that extend() returned, got the one that was extended`,
    )
    expect(await under.provider().find(held.name)).toMatchObject({ held: true, released: false })
    expect(await longer.unlock()).toBe(true)
    expect(await longer.extend('1h')).toBeUndefined()
    expect(await longer.unlock()).toBe(false)
  })

  test('the same reentry takes a held lock, with a higher fence; another, or none, does not', async () => {
    const config = fresh()
    const crashed = (await under.provider('crashed').lock({ ...config, reentry: 'job|1~%@2026-11-21T06:00:00Z' }))!
    const other = under.provider('other')
    for (const reentry of ['1~%@2026-11-21T06:00:00Z', 'job', '%', undefined])
      expect(await other.lock({ ...config, reentry })).toBeUndefined()
    const again = (await other.lock({ ...config, reentry: 'job|1~%@2026-11-21T06:00:00Z' }))!
    expect(again.fence).toBeGreaterThan(crashed.fence)
    expect(await crashed.extend('1h')).toBeUndefined()
    expect(await crashed.unlock()).toBe(false)
    expect(await again.unlock()).toBe(true)
  })

  test("the longest name of a holder and the longest reentry fit ShedLock's 255 characters, released too", async () => {
    const provider = under.provider('h'.repeat(100))
    const config = fresh({ lockAtLeastFor: '1h', reentry: `${'r'.repeat(137)}|` })
    const held = (await provider.lock(config))!
    expect(await held.unlock()).toBe(true)
    const { lockedBy, released } = (await provider.find(config.name))!
    expect([lockedBy!.length <= 255, released]).toEqual([true, true])
    await expect(provider.lock({ ...config, reentry: 'r'.repeat(141) })).rejects.toThrow(
      /reentry: expected a string of 1 to 140 characters/,
    )
  })

  test('a reentry that looks like a released lock is none', async () => {
    const config = fresh({ reentry: 'job~released' })
    await under.provider('crashed').lock(config)
    expect(await under.provider().find(config.name)).toMatchObject({ held: true, released: false })
  })

  test('a released lock that lockAtLeastFor keeps is not re-entered', async () => {
    const config = fresh({ lockAtLeastFor: '1h', reentry: 'run' })
    const held = (await under.provider().lock(config))!
    await held.unlock()
    expect(await under.provider().lock(config)).toBeUndefined()
  })

  test('fences go on growing when the record was deleted', async () => {
    const config = fresh()
    const provider = under.provider()
    const fences: number[] = []
    for (let i = 0; i < 4; i++) {
      const held = (await provider.lock(config))!
      fences.push(held.fence)
      await held.unlock()
      await under.deleteRecord(config.name)
      // Growth by the clock needs a millisecond: docs/caveats.md.
      await sleep(3)
    }
    expect(fences).toEqual([...new Set(fences)].sort((x, y) => x - y))
    expect(fences.every((fence) => Number.isSafeInteger(fence))).toBe(true)
  })

  test('an operator sees all locks and frees one; its holder notices', async () => {
    const operator = under.provider('operator')
    const [free, kept, stuck] = [fresh(), fresh(), fresh({ lockAtLeastFor: '1h' })]
    await (await under.provider('x').lock(free))!.unlock()
    await under.provider('y').lock(kept)
    const held = (await under.provider('z').lock(stuck))!
    const listed = (await operator.list({ heldOnly: true })).filter(({ name }) =>
      [free.name, kept.name, stuck.name].includes(name),
    )
    expect(listed.map(({ name }) => name)).toEqual([kept.name, stuck.name].sort())
    expect(listed.find(({ name }) => name === stuck.name)).toEqual({
      name: stuck.name,
      lockedBy: held.lockedBy,
      lockedAt: held.lockedAt,
      lockUntil: expect.any(Date),
      fence: held.fence,
      held: true,
      released: false,
    })
    expect(await operator.release(stuck.name, 'somebody else')).toBeUndefined()
    expect(await operator.release(stuck.name, held.lockedBy)).toMatchObject({ lockedBy: held.lockedBy })
    expect(await operator.release(stuck.name)).toBeUndefined()
    expect(await held.extend('1h')).toBeUndefined()
    expect(await held.unlock()).toBe(false)
    expect((await under.provider().lock(stuck))!.fence).toBeGreaterThan(held.fence)
  })

  test.each([
    ['freed by an operator', (name: string) => under.provider('operator').release(name)],
    ['gone, as somebody has deleted its record', (name: string) => under.deleteRecord(name)],
    [
      'that of another who deleted its record and took it',
      async (name: string) => {
        await under.deleteRecord(name)
        await under.provider('another').lock({ name, lockAtMostFor: '1h' })
      },
    ],
  ])('its holder learns that it is %s long before it would extend it', async (_what, free) => {
    if (kind === 'memory' && /record/.test(_what)) return
    const { name } = fresh()
    const { name: kept } = fresh()
    const executor = new LockExecutor(under.provider())
    const begun = gate()
    const lost = executor.executeWithLock(
      async ({ signal }) => {
        begun.open()
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        return signal.reason
      },
      { name, lockAtMostFor: '30m', watchdog: true },
    )
    const over = gate()
    const other = executor.executeWithLock(
      async ({ signal, extend }) => {
        await extend('31m')
        await over.wait
        return signal.aborted
      },
      { name: kept, lockAtMostFor: '30m' },
    )
    await begun.wait
    await free(name)
    expect(await lost).toMatchObject({ executed: true, result: { name: 'LockLost' } })
    over.open()
    expect(await other).toEqual({ executed: true, result: false })
  })

  test('names are taken as they are', async () => {
    for (const name of ['a.b$c', '$x', '{tag}y', '}{', "o'clock", 'Ключ', 'a*?[b]', '%']) {
      const config = { name, lockAtMostFor: '1h', lockAtLeastFor: '1h' }
      const held = await under.provider().lock(config)
      expect(held?.name).toBe(name)
      expect(await under.provider().lock(config)).toBeUndefined()
      expect(await under.provider().find(name)).toMatchObject({ name, lockedBy: held?.lockedBy })
      expect((await under.provider().list()).filter((one) => one.name === name)).toHaveLength(1)
    }
  })
})
