import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { type LockProvider, LockProviderUnavailable, memoryLocks } from '../../../src/locks/index.js'
import { loggerOf, silentLogger } from '../../../src/phases/reporting/logger.js'
import { eventually } from '../../support/database.js'
import { gate } from '../../support/thing.js'
import { grantingAll } from './fake-locks.js'
import { memoryUnderTest, mongoUnderTest, type StoreUnderTest } from './stores.js'

const many = <T>(n: number, one: (i: number) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: n }, (_, i) => one(i)))

let prefixes = 0

describe.each([
  ['mongodb', mongoUnderTest],
  ['memory', memoryUnderTest],
] as const)('getOrLoad in %s', (_kind, start) => {
  let under: StoreUnderTest
  let prefix: string
  beforeEach(async () => {
    under = await start()
    prefix = `load${++prefixes}`
  })
  afterEach(() => under.close())
  const valuesOf = <V>(options = {}) => under.open(options).of<V>(prefix, { ttl: '1h' })

  test('3 processes with 100 callers each load once, and all get that value', async () => {
    const processes = Array.from({ length: 3 }, () => valuesOf<number>())
    let loads = 0
    const over = gate()
    const load = async () => {
      loads += 1
      await over.wait
      return loads
    }
    const all = Promise.all(processes.map((values) => many(100, () => values.getOrLoad('token', load))))
    await eventually(() => loads === 1)
    over.open()
    expect((await all).flat()).toEqual(Array.from({ length: 300 }, () => 1))
    expect(loads).toBe(1)
    expect(await processes[0]!.getOrLoad('token', load)).toBe(1)
    expect(await valuesOf<number>().get('token')).toBe(1)
  })

  test('a failed load goes to those who wait for it, is not stored, and the next caller tries', async () => {
    const values = valuesOf<string>()
    const over = gate()
    let loads = 0
    const failing = async () => {
      loads += 1
      await over.wait
      throw new Error(`refused ${loads}`)
    }
    const waiting = many(10, () => values.getOrLoad('token', failing).catch((error: Error) => error.message))
    await eventually(() => loads === 1)
    over.open()
    expect(await waiting).toEqual(Array.from({ length: 10 }, () => 'refused 1'))
    expect(await values.get('token')).toBeUndefined()
    expect(await values.getOrLoad('token', () => 'in')).toBe('in')
    expect(loads).toBe(1)
  })

  test('while another process loads, a caller waits for lockWait, and then gets an error that names it', async () => {
    const over = gate()
    const begun = gate()
    const first = valuesOf<string>().getOrLoad('token', async () => {
      begun.open()
      await over.wait
      return 'in'
    })
    await begun.wait
    const second = valuesOf<string>().getOrLoad('token', () => 'twice', { lockWait: '60ms' })
    await expect(second).rejects.toMatchObject({
      name: 'StillLoading',
      key: `${prefix}:default:token`,
      heldBy: expect.stringMatching(/./),
      message: expect.stringContaining('within 60 ms'),
    })
    over.open()
    expect(await first).toBe('in')
  })

  test('a load that takes longer than lockAtMostFor ends for its callers, and stores nothing', async () => {
    const values = valuesOf<string>()
    const endless = gate()
    let aborted = false
    const load = async ({ signal }: { signal: AbortSignal }) => {
      signal.addEventListener('abort', () => {
        aborted = true
      })
      await endless.wait
      return 'late'
    }
    await expect(values.getOrLoad('token', load, { lockAtMostFor: '300ms' })).rejects.toMatchObject({
      name: 'LockLost',
    })
    expect(aborted).toBe(true)
    endless.open()
    expect(await valuesOf<string>().getOrLoad('token', () => 'in')).toBe('in')
    expect(await values.get('token')).toBe('in')
  })

  test('what is loaded under a lock that is over does not replace what a later holder has stored', async () => {
    const locks = grantingAll([1, 2])
    const [paused, later] = [valuesOf<string>({ locks }), valuesOf<string>({ locks })]
    const begun = gate()
    const over = gate()
    const late = paused.getOrLoad('token', async () => {
      begun.open()
      await over.wait
      return 'old'
    })
    await begun.wait
    expect(await later.getOrLoad('token', () => 'new')).toBe('new')
    over.open()
    expect(await late).toBe('new')
    expect(await later.get('token')).toBe('new')
  })

  test('a later holder replaces what one before it has stored too late', async () => {
    const locks = grantingAll([1, 2])
    const [paused, later] = [valuesOf<string>({ locks }), valuesOf<string>({ locks })]
    const [begun, over] = [gate(), gate()]
    const [begunToo, overToo] = [gate(), gate()]
    const first = paused.getOrLoad('token', async () => {
      begun.open()
      await over.wait
      return 'old'
    })
    await begun.wait
    const second = later.getOrLoad('token', async () => {
      begunToo.open()
      await overToo.wait
      return 'new'
    })
    await begunToo.wait
    over.open()
    expect(await first).toBe('old')
    overToo.open()
    expect(await second).toBe('new')
    expect(await paused.get('token')).toBe('new')
  })

  test('a value that is set during a load is not replaced by it, and whoever asks then gets it', async () => {
    const values = valuesOf<string>()
    const begun = gate()
    const over = gate()
    const loading = values.getOrLoad('token', async () => {
      begun.open()
      await over.wait
      return 'loaded'
    })
    await begun.wait
    await values.set('token', 'set')
    expect(await values.getOrLoad('token', () => 'twice')).toBe('set')
    over.open()
    expect(await loading).toBe('set')
    expect(await values.get('token')).toBe('set')
  })

  test('100 callers for whom the stored value is no longer good load once', async () => {
    const processes = [valuesOf<string>(), valuesOf<string>()]
    await processes[0]!.set('token', 't0')
    let loads = 0
    const refresh = (refused: string) => (i: number) =>
      processes[i % 2]!.getOrLoad('token', async () => `t${++loads}`, { isFresh: (token) => token !== refused })
    const [kept, ...refreshed] = await Promise.all([
      processes[0]!.getOrLoad('token', () => 'none'),
      ...Array.from({ length: 100 }, (_, i) => refresh('t0')(i)),
    ])
    expect(['t0', 't1']).toContain(kept)
    expect(refreshed).toEqual(Array.from({ length: 100 }, () => 't1'))
    expect(await many(10, refresh('t1'))).toEqual(Array.from({ length: 10 }, () => 't2'))
  })

  test('a load that asks for its own key is told so; two that ask for each other end with their locks', async () => {
    const values = valuesOf<string>()
    const self = () => values.getOrLoad('a', () => 'x')
    await expect(values.getOrLoad('a', () => self())).rejects.toMatchObject({ name: 'LoadsItself' })
    expect(await values.getOrLoad('outer', () => values.getOrLoad('inner', () => 'x'))).toBe('x')
    const both = [gate(), gate()]
    const crossed = (mine: string, other: string, i: number) =>
      values.getOrLoad(
        mine,
        async () => {
          both[i]!.open()
          await both[1 - i]!.wait
          return await values.getOrLoad(other, () => 'x', { lockWait: '100ms' })
        },
        { lockAtMostFor: '400ms' },
      )
    const outcomes = await Promise.allSettled([crossed('b', 'c', 0), crossed('c', 'b', 1)])
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  })

  test('when the locks are away, callers get an error, or the last value for staleFor with one warning', async () => {
    const lines: string[] = []
    const logger = loggerOf((level, message) => void (level === 'warn' && lines.push(message)))
    const granted = memoryLocks()
    let isAway = false
    const locks: LockProvider = {
      kind: 'redis',
      lock: (config) =>
        isAway ? Promise.reject(new LockProviderUnavailable('redis', 'lock', new Error('gone'))) : granted.lock(config),
    }
    const store = under.open({ locks, logger })
    const values = store.of<string>(prefix, { ttl: '1h' })
    const ask = (staleFor?: '1h') => values.getOrLoad('token', () => 'in', { staleFor })
    expect(await ask('1h')).toBe('in')
    await under.expire(`${prefix}:default:token`)
    isAway = true
    await expect(ask()).rejects.toMatchObject({ name: 'LockProviderUnavailable' })
    expect([await ask('1h'), await ask('1h')]).toEqual(['in', 'in'])
    expect(lines).toEqual([expect.stringContaining(`'${prefix}:default:token': the last value is in use`)])
    isAway = false
    expect(await ask('1h')).toBe('in')
  })

  test('staleFor counts from the end that keepFor has set', async () => {
    let [isAway, aheadMs] = [false, 0]
    const clock = { now: () => new Date(), monotonicMs: () => performance.now() + aheadMs }
    const granted = memoryLocks()
    const away = () => Promise.reject(new LockProviderUnavailable('redis', 'lock', new Error('gone')))
    const locks: LockProvider = { kind: 'redis', lock: (config) => (isAway ? away() : granted.lock(config)) }
    const values = under.open({ locks, clock, logger: silentLogger }).of<string>(prefix)
    const ask = () =>
      values.getOrLoad(
        'token',
        ({ keepFor }) => {
          keepFor('1h')
          return 'in'
        },
        { staleFor: '100ms' },
      )
    expect(await ask()).toBe('in')
    await under.expire(`${prefix}:default:token`)
    isAway = true
    aheadMs = 60_000
    expect(await ask()).toBe('in')
    aheadMs = 3_700_000
    await expect(ask()).rejects.toMatchObject({ name: 'LockProviderUnavailable' })
  })

  test('a timer that a load has begun may ask for its key when the load is over', async () => {
    const values = valuesOf<string>()
    const asked = Promise.withResolvers<string>()
    const over = gate()
    await values.getOrLoad('a', () => {
      void over.wait.then(() => values.getOrLoad('a', () => 'again')).then(asked.resolve, asked.reject)
      return 'first'
    })
    await values.delete('a')
    over.open()
    expect(await asked.promise).toBe('again')
  })
})
