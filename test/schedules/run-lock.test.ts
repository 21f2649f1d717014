import { describe, expect, test } from '@jest/globals'
import { holderIdentity } from '../../src/lock/named/acquisition.js'
import { NamedLocks } from '../../src/lock/named/named-locks.js'
import { MemoryLockStore } from '../../src/lock/named/providers/memory.js'
import type { RunDocument } from '../../src/schedules/documents.js'
import { ScheduleObservers } from '../../src/schedules/observer.js'
import { RunLock, RunLocks } from '../../src/schedules/run-lock.js'
import { eventually } from '../support/database.js'
import { recordingLogger } from '../support/thing.js'

const AT_MOST_MS = 150
const run = { _id: 's@2026-11-21T06:00:00.000Z', schedule: 's', maxInstances: 1 } as RunDocument

/** Replicas with the same locks, on a clock that stands still. */
function replicas(lockAtMostForMs = AT_MOST_MS) {
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

test('a lock that can not be extended is lost with a third of its time left, counted from its last extension', async () => {
  const { a, store, clock } = replicas(3 * AT_MOST_MS)
  let isAway = false
  const asked = { extended: 0, failed: 0 }
  const extend = store.extend.bind(store)
  store.extend = async (...args) => {
    if (isAway) {
      asked.failed += 1
      throw new Error('away')
    }
    asked.extended += 1
    return await extend(...args)
  }
  const lock = await entered(a)
  let lost = 0
  clock.nowMs = 200
  lock.watch(() => {
    lost += 1
  })
  await eventually(() => asked.extended === 1)
  isAway = true
  // 299 ms of 450 since it was extended.
  clock.nowMs = 200 + 299
  await eventually(() => asked.failed >= 3)
  expect(lost).toBe(0)
  clock.nowMs = 200 + 300
  await eventually(() => lost === 1)
  const { failed } = asked
  await new Promise((resolve) => setTimeout(resolve, 60))
  expect({ lost, failed: asked.failed }).toEqual({ lost: 1, failed })
})
