import { describe, expect, test } from '@jest/globals'
import { holderIdentity } from '../../src/locks/acquisition.js'
import { ActiveLock } from '../../src/locks/active-lock.js'
import { InvalidLockConfig, LockLost, NotLocked } from '../../src/locks/errors.js'
import { type HeldLockContext, LockExecutor } from '../../src/locks/lock-executor.js'
import type { LockObserver } from '../../src/locks/lock-observer.js'
import { LockAssert, LockExtender } from '../../src/locks/lock-path.js'
import type { LockProvider } from '../../src/locks/lock-provider.js'
import { NamedLocks } from '../../src/locks/named-locks.js'
import { MemoryLockStore } from '../../src/locks/providers/memory.js'
import { sleep } from '../../src/time/index.js'
import { eventually } from '../support/database.js'
import { gate } from '../support/thing.js'

function twoProcesses(observer: LockObserver = {}) {
  const store = new MemoryLockStore()
  const [ours, theirs] = ['ours', 'theirs'].map((name) => new NamedLocks(store, holderIdentity(name)))
  return { ours: ours!, theirs: theirs!, executor: new LockExecutor(ours!, { observer }) }
}

const config = { name: 'report', lockAtMostFor: '1h' }
const STANDING = { now: () => new Date(0), monotonicMs: () => 0 }
const aborted = ({ signal }: HeldLockContext) =>
  new Promise<unknown>((resolve) => {
    if (signal.aborted) resolve(signal.reason)
    signal.addEventListener('abort', () => resolve(signal.reason))
  })

describe('executeWithLock', () => {
  test('gives the result, and unlocks also after a failure', async () => {
    const { executor, theirs } = twoProcesses()
    const result = await executor.executeWithLock(async ({ name, fence }) => `${name} ${typeof fence}`, config)
    expect(result).toEqual({ executed: true, result: 'report number' })
    const failing = executor.executeWithLock(() => Promise.reject(new Error('out of paper')), config)
    await expect(failing).rejects.toThrow('out of paper')
    expect(await theirs.lock(config)).toBeDefined()
  })

  test('harms nobody with what its observer throws or rejects with', async () => {
    const failing = async () => {
      throw new Error('rejected')
    }
    const acquired = () => {
      throw new Error('thrown')
    }
    const { executor } = twoProcesses({ acquired, finished: failing, failed: failing })
    expect(await executor.executeWithLock(() => 1, config)).toEqual({ executed: true, result: 1 })
    // A rejection that nobody catches fails the test by then.
    await new Promise((resolve) => setImmediate(resolve))
  })

  test('says who has it and until when, and never waits', async () => {
    const { executor, theirs } = twoProcesses()
    const held = (await theirs.lock(config))!
    const refused = await executor.executeWithLock(() => 1, config)
    expect(refused).toEqual({ executed: false, heldBy: held.lockedBy, until: held.lockUntil })
  })

  test('the same call path runs on; a call beside it does not', async () => {
    const { executor } = twoProcesses()
    const result = await executor.executeWithLock(async (outer) => {
      const inner = await executor.executeWithLock(async ({ fence }) => fence === outer.fence, config)
      expect(inner).toEqual({ executed: true, result: true })
      return 'done'
    }, config)
    expect(result).toEqual({ executed: true, result: 'done' })

    let release!: () => void
    const beside = executor.executeWithLock(() => new Promise<void>((resolve) => (release = resolve)), config)
    await eventually(() => release !== undefined)
    expect(await executor.executeWithLock(() => 1, config)).toMatchObject({ executed: false })
    release()
    await beside
  })

  test('the same name in another place is another lock', async () => {
    const [one, another] = [twoProcesses(), twoProcesses()]
    await another.theirs.lock(config)
    const inner = () => another.executor.executeWithLock(() => 1, config)
    expect(await one.executor.executeWithLock(inner, config)).toMatchObject({ result: { executed: false } })
  })

  test('what goes on after the task has ended has no lock any more', async () => {
    const { executor, theirs } = twoProcesses()
    let later!: Promise<unknown>
    let go!: () => void
    const gate = new Promise<void>((resolve) => (go = resolve))
    await executor.executeWithLock(() => {
      later = gate.then(() => executor.executeWithLock(() => 1, config))
    }, config)
    await theirs.lock(config)
    go()
    expect(await later).toMatchObject({ executed: false })
  })

  test('waitFor waits for as long as it says', async () => {
    const { executor, theirs } = twoProcesses()
    const held = (await theirs.lock(config))!
    const waiting = executor.executeWithLock(() => 'had it', { ...config, waitFor: '20s' })
    await held.unlock()
    expect(await waiting).toEqual({ executed: true, result: 'had it' })
    await theirs.lock(config)
    expect(await executor.executeWithLock(() => 1, { ...config, waitFor: '30ms' })).toMatchObject({ executed: false })
    const ending = new AbortController()
    const given = executor.executeWithLock(() => 1, { ...config, waitFor: '20s', signal: ending.signal })
    ending.abort()
    expect(await given).toMatchObject({ executed: false })
  })

  // getOrLoad of phaselock-state does it in full.
  test('a login that all share is made once, by whoever is first; the others find it', async () => {
    const { executor } = twoProcesses()
    const sessions: string[] = []
    let logins = 0
    const token = async (forceRefresh = false) => {
      const known = forceRefresh ? undefined : sessions[0]
      if (known !== undefined) return known
      const logIn = async () => {
        const found = forceRefresh ? undefined : sessions[0]
        if (found !== undefined) return found
        logins += 1
        await new Promise((resolve) => setImmediate(resolve))
        sessions[0] = `token ${logins}`
        return sessions[0]
      }
      const outcome = await executor.executeWithLock(logIn, { ...config, lockAtMostFor: '30s', waitFor: '20s' })
      return outcome.executed ? outcome.result : sessions[0]
    }
    expect(await Promise.all(Array.from({ length: 8 }, () => token()))).toEqual(Array(8).fill('token 1'))
    expect(await token(true)).toBe('token 2')
    expect(logins).toBe(2)
  })

  test('a task that outlives its lock is told by its signal', async () => {
    const lost: string[] = []
    const { executor } = twoProcesses({ lost: ({ name }) => lost.push(name) })
    const result = await executor.executeWithLock(aborted, { ...config, lockAtMostFor: '400ms' })
    expect(result).toEqual({ executed: true, result: expect.any(LockLost) })
    expect(lost).toEqual(['report'])
  })

  test('the watchdog holds it for as long as the task runs', async () => {
    const { executor, theirs } = twoProcesses()
    const task = async ({ lockedBy, signal }: HeldLockContext) => {
      const first = (await theirs.find('report'))!
      await eventually(async () => {
        const now = await theirs.find('report')
        return now?.lockedBy === lockedBy && now.lockUntil!.getTime() > first.lockUntil!.getTime() + 500
      })
      return signal.aborted
    }
    expect(await executor.executeWithLock(task, { ...config, lockAtMostFor: '8s', watchdog: '100ms' })).toEqual({
      executed: true,
      result: false,
    })
    expect((await theirs.find('report'))?.held).toBe(false)
  })

  test('an operator frees it: the watchdog notices and the signal aborts, long before lockAtMostFor', async () => {
    const { executor, theirs } = twoProcesses()
    const running = executor.executeWithLock(aborted, { ...config, watchdog: '30ms' })
    await eventually(async () => (await theirs.release('report')) !== undefined)
    expect(await running).toEqual({ executed: true, result: expect.any(LockLost) })
  })

  test('an operator frees it: the signal aborts also without a watchdog, and what others hold goes on', async () => {
    const lost: string[] = []
    const { executor, theirs, ours } = twoProcesses({ lost: ({ name }) => lost.push(name) })
    const other = new LockExecutor(ours)
    const kept = other.executeWithLock(
      async (held) => {
        await eventually(() => expect(lost).toEqual(['report']))
        await held.extend('2h')
        return held.signal.aborted
      },
      { ...config, name: 'kept' },
    )
    const running = executor.executeWithLock(aborted, config)
    await eventually(async () => (await theirs.release('report')) !== undefined)
    expect(await running).toEqual({ executed: true, result: expect.any(LockLost) })
    expect(await kept).toEqual({ executed: true, result: false })
  })

  test.each([
    ['with find alone: each is asked for by itself', true],
    ['that shows nothing: the end of the lease alone tells', false],
  ])('a provider of your own %s', async (_which, finds) => {
    const { ours, theirs } = twoProcesses()
    const provider: LockProvider = {
      kind: 'own',
      lock: (one) => ours.lock(one),
      ...(finds && { find: (name: string) => ours.find(name) }),
    }
    const running = new LockExecutor(provider).executeWithLock(aborted, {
      ...config,
      lockAtMostFor: finds ? '1h' : '2s',
    })
    await eventually(async () => (await theirs.release('report')) !== undefined)
    expect(await running).toEqual({ executed: true, result: expect.any(LockLost) })
  })

  test('asks for all that it holds at once, only while it holds something, and goes on after an outage', async () => {
    const { ours, executor, theirs } = twoProcesses()
    const asked: string[][] = []
    const holders = ours.holders.bind(ours)
    ours.holders = async (names) => {
      asked.push([...names].sort())
      if (asked.length === 1) throw new Error('away')
      return await holders(names)
    }
    const done = gate()
    await executor.executeWithLock(() => 1, { ...config, name: 'short' })
    const running = ['a', 'b'].map((name) => executor.executeWithLock(() => done.wait, { ...config, name }))
    const freed = executor.executeWithLock(aborted, { ...config, name: 'c' })
    await eventually(async () => (await theirs.release('c')) !== undefined)
    expect(await freed).toEqual({ executed: true, result: expect.any(LockLost) })
    expect(new Set(asked.map(String))).toEqual(new Set(['a,b,c']))
    done.open()
    await Promise.all(running)
    const before = asked.length
    await sleep(1_000)
    expect(asked).toHaveLength(before)
  })

  test('a watchdog that gets no answer aborts with a third of the lease left', async () => {
    const failures: string[] = []
    const { ours, executor, theirs } = twoProcesses({ failed: ({ action }) => failures.push(action) })
    const lock = ours.lock.bind(ours)
    ours.lock = async (asked) => {
      const held = (await lock(asked))!
      return Object.assign(Object.create(held), { extend: () => Promise.reject(new Error('no route to host')) })
    }
    const task = async (held: HeldLockContext) => {
      await aborted(held)
      return await theirs.find('report')
    }
    const result = await executor.executeWithLock(task, { ...config, lockAtMostFor: '6s', watchdog: true })
    expect(result).toMatchObject({ executed: true, result: { held: true } })
    expect(failures.length).toBeGreaterThan(1)
  })

  test("an extension to less whose answer was lost: the task is told before the lock can be another's", async () => {
    const { ours, executor, theirs } = twoProcesses()
    const lock = ours.lock.bind(ours)
    ours.lock = async (asked) => {
      const held = (await lock(asked))!
      const extend = async (...args: Parameters<typeof held.extend>) => {
        await held.extend(...args)
        throw new Error('the connection was lost')
      }
      return Object.assign(Object.create(held), { extend })
    }
    const task = async (held: HeldLockContext) => {
      await expect(LockExtender.extendActiveLock('300ms')).rejects.toThrow('the connection was lost')
      await aborted(held)
      return await eventually(async () => (await theirs.lock(config)) !== undefined)
    }
    expect(await executor.executeWithLock(task, config)).toEqual({ executed: true, result: true })
  })

  test.each([
    [
      { name: '', lockAtMostFor: '1s' },
      /lock \(without a name\) can't be used: name: expected a string, got an empty one/,
    ],
    [{ lockAtMostFor: '1s' }, /name: expected a string, got undefined/],
    [{ name: 'x' }, /lock 'x' can't be used: lockAtMostFor: expected a duration such as 'PT50S'.* got undefined/],
    [{ name: 'x', lockAtMostFor: '0s' }, /lockAtMostFor: expected more than 0 and at most 365 days, got 0 ms/],
    [{ name: 'x', lockAtMostFor: '-PT5S' }, /lockAtMostFor: expected more than 0 .* got -5000 ms/],
    [{ name: 'x', lockAtMostFor: '50' }, /got "50"; add the unit \('50ms' or '50s'\)/],
    [
      { name: 'x', lockAtMostFor: 50 },
      /lockAtMostFor: expected a duration .* got 50; add the unit \('50ms' or '50s'\)/,
    ],
    [
      { name: 'x', lockAtMostFor: '1s', lockAtLeastFor: 0 },
      /lockAtLeastFor: expected a duration .* got 0; add the unit/,
    ],
    [{ name: 'x', lockAtMostFor: '1s', waitFor: 1 }, /waitFor: expected a duration .* got 1; add the unit/],
    [{ name: 'x', lockAtMostFor: '1s', watchdog: 300 }, /watchdog: expected a duration .* got 300; add the unit/],
    [
      { name: 'x', lockAtMostFor: '1s', lockAtLeastFor: '2s' },
      /lockAtLeastFor \(2000 ms\): expected at most lockAtMostFor/,
    ],
    [{ name: 'x', lockAtMostFor: '1s', lockAtLeastFor: '-1ms' }, /lockAtLeastFor: expected 0 or more, got -1 ms/],
    [{ name: 'x', lockAtMostFor: '1s', watchdog: '1s' }, /watchdog: expected true, or more than 0 and at most half/],
    [{ name: 'x', lockAtMostFor: '1s', waitFor: '-1ms' }, /waitFor: expected 0 or more/],
    [{ name: 'x', lockAtMostFor: '1s', atLeast: 1 }, /unknown option 'atLeast'.*; known: name, lockAtMostFor/],
    [undefined, /expected \{ name, lockAtMostFor, lockAtLeastFor\? \}, got undefined/],
  ])('%j is refused with a clear error', async (given, message) => {
    const { executor } = twoProcesses()
    const refused = executor.executeWithLock(() => 1, given as never)
    await expect(refused).rejects.toThrow(InvalidLockConfig)
    await expect(refused).rejects.toThrow(message)
  })
})

test('an unlock frees the lock in whichever moment an extension is answered', async () => {
  const { ours, theirs } = twoProcesses()
  for (let microtasks = 0; microtasks < 30; microtasks++) {
    const active = new ActiveLock(ours, (await ours.lock(config))!, 3_600_000, 0, undefined, STANDING)
    // Lost if the unlock comes first.
    const extending = active.extend('2h').catch((error: unknown) => expect(error).toBeInstanceOf(LockLost))
    for (let i = 0; i < microtasks; i++) await undefined
    expect(await active.unlock()).toBe(true)
    await extending
    expect((await theirs.find(config.name))?.held).toBe(false)
  }
})

describe('on the call path', () => {
  test('LockExtender extends the innermost lock', async () => {
    const { executor, theirs } = twoProcesses()
    await executor.executeWithLock(async () => {
      await executor.executeWithLock(() => LockExtender.extendActiveLock('3h'), { ...config, name: 'inner' })
      const before = (await theirs.find('report'))!.lockUntil!
      await LockExtender.extendActiveLock('2h', '1m')
      expect((await theirs.find('report'))!.lockUntil!.getTime()).toBeGreaterThan(before.getTime() + 3_000_000)
      await theirs.release('report')
      await expect(LockExtender.extendActiveLock('2h')).rejects.toThrow(LockLost)
      expect(() => LockAssert.assertLocked()).toThrow(LockLost)
    }, config)
    await expect(LockExtender.extendActiveLock('2h')).rejects.toThrow(NotLocked)
  })

  test('LockAssert knows whether there is one, and passes in unit tests that ask for it', async () => {
    const { executor } = twoProcesses()
    expect(() => LockAssert.assertLocked()).toThrow(NotLocked)
    await executor.executeWithLock(() => {
      LockAssert.assertLocked()
      LockAssert.assertLocked('report')
      expect(() => LockAssert.assertLocked('another')).toThrow(/the lock 'another', but no such lock is held/)
    }, config)
    expect(LockAssert.passWithin(() => LockAssert.assertLocked('report'))).toBeUndefined()
    expect(() => LockAssert.assertLocked()).toThrow(NotLocked)
  })
})
