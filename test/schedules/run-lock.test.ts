import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals'
import { holderIdentity } from '../../src/locks/acquisition.js'
import { NamedLocks } from '../../src/locks/named-locks.js'
import { MemoryLockStore } from '../../src/locks/providers/memory.js'
import type { RunDocument } from '../../src/schedules/documents.js'
import { ScheduleObservers } from '../../src/schedules/observer.js'
import { RunLock, RunLocks } from '../../src/schedules/run-lock.js'
import { recordingLogger } from '../support/thing.js'

const run = { _id: 's@2026-11-21T06:00:00.000Z', schedule: 's', maxInstances: 1 } as RunDocument

/** Replicas with the same locks, on a clock that stands still. */
function replicas(lockAtMostForMs: number) {
  const clock = { nowMs: 0, now: () => new Date(0), monotonicMs: () => clock.nowMs }
  const store = new MemoryLockStore(clock)
  const logger = recordingLogger()
  const locksOf = (name: string) => {
    const provider = new NamedLocks(store, holderIdentity(name), clock)
    const observers = new ScheduleObservers(logger)
    return new RunLocks({ provider: () => provider, lockAtMostForMs, clock, logger, observers })
  }
  return { store, clock, a: locksOf('a'), b: locksOf('b') }
}

async function entered(locks: RunLocks): Promise<RunLock> {
  const lock = await locks.enter(run)
  if (!(lock instanceof RunLock)) throw new Error('expected to enter')
  return lock
}

describe('a lock that was taken for a run that was Queued', () => {
  test('serves the run that is Running, once', async () => {
    const { a } = replicas(3_600_000)
    const lock = await entered(a)
    a.keep(run, lock)
    const running = { ...run, lockFence: lock.fence }
    expect(a.kept(running)).toBe(lock)
    expect(a.kept(running)).toBeUndefined()
  })

  test('does not when another replica has entered since', async () => {
    const { a, b } = replicas(3_600_000)
    a.keep(run, await entered(a))
    const others = await entered(b)
    expect(a.kept({ ...run, lockFence: others.fence })).toBeUndefined()
  })

  test('does not when it is old', async () => {
    const { a, clock } = replicas(3_600_000)
    const lock = await entered(a)
    a.keep(run, lock)
    clock.nowMs = 5_000
    expect(a.kept({ ...run, lockFence: lock.fence })).toBeUndefined()
  })
})

describe('a lock while its task runs', () => {
  beforeEach(() => void jest.useFakeTimers())
  afterEach(() => void jest.useRealTimers())

  /** A lock for 450 ms that is watched, and what was asked of its store. */
  async function watched() {
    const { a, store, clock } = replicas(450)
    const seen = { isAway: false, extended: 0, failed: 0, lost: 0 }
    const extend = store.extend.bind(store)
    store.extend = async (...args) => {
      seen[seen.isAway ? 'failed' : 'extended'] += 1
      if (seen.isAway) throw new Error('away')
      return await extend(...args)
    }
    const lock = await entered(a)
    lock.watch(() => {
      seen.lost += 1
    })
    const pass = async (ms: number) => {
      clock.nowMs += ms
      await jest.advanceTimersByTimeAsync(ms)
    }
    return { lock, seen, pass }
  }

  test('is extended every third of its time, until it is released', async () => {
    const { lock, seen, pass } = await watched()
    await pass(149)
    expect(seen.extended).toBe(0)
    await pass(1)
    await pass(150)
    expect(seen.extended).toBe(2)
    await lock.release()
    await pass(1_000)
    expect(seen).toMatchObject({ extended: 2, lost: 0 })
  })

  test('is lost with a third of its time left where it can not be extended, counted from the last time', async () => {
    const { seen, pass } = await watched()
    await pass(150)
    seen.isAway = true
    await pass(150)
    for (let ms = 0; ms < 149; ms += 1) await pass(1)
    expect(seen).toMatchObject({ extended: 1, lost: 0 })
    expect(seen.failed).toBeGreaterThan(2)
    await pass(1)
    expect(seen.lost).toBe(1)
    const { failed } = seen
    await pass(1_000)
    expect(seen).toMatchObject({ lost: 1, failed })
  })
})
