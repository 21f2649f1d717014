import { afterEach, describe, expect, test } from '@jest/globals'
import { LockExecutor, memoryLocks, mongoLockProvider, observeLocks } from '../../src/locks/index.js'
import { lockMetrics, replicaMetrics } from '../../src/telemetry/index.js'
import type { LockNames } from '../../src/telemetry/metrics/lock-metrics.js'
import { eventually, useDatabase } from '../support/database.js'

const ended: (() => void)[] = []
afterEach(() => {
  for (const end of ended.splice(0)) end()
})

describe('the metrics of named locks', () => {
  const database = useDatabase()

  test('acquisitions by result, waits, holds and what is held, as Prometheus reads them', async () => {
    const { db } = database
    const metrics = replicaMetrics({ db, lifecycles: [], processMetrics: false, lockNames: ['nightly'] })
    const executor = new LockExecutor(mongoLockProvider(db, { name: 'ours' }), { observer: metrics.locks })
    const theirs = mongoLockProvider(db, { name: 'theirs' })
    const nightly = { name: 'nightly', lockAtMostFor: '1h' }
    const begun = 'phaselock_lock_acquisitions_total{lock="nightly",result="acquired"} 0'
    expect(await metrics.registry.metrics()).toContain(begun)

    const whileHeld = await executor.executeWithLock(async () => await metrics.registry.metrics(), nightly)
    expect(whileHeld).toMatchObject({ result: expect.stringContaining('phaselock_locks_held{lock="nightly"} 1') })
    await executor.executeWithLock(() => 1, { name: 'tenant-42', lockAtMostFor: '1h' })
    await theirs.lock(nightly)
    await executor.executeWithLock(() => 1, nightly)
    await executor.executeWithLock(() => 1, { ...nightly, waitFor: '30ms' })
    await executor.executeWithLock(() => 1, { ...nightly, waitFor: '1h', signal: AbortSignal.abort() })

    const text = await metrics.registry.metrics()
    for (const line of [
      'phaselock_lock_acquisitions_total{lock="nightly",result="acquired"} 1',
      'phaselock_lock_acquisitions_total{lock="nightly",result="held"} 1',
      'phaselock_lock_acquisitions_total{lock="nightly",result="timedOut"} 1',
      'phaselock_lock_acquisitions_total{lock="nightly",result="aborted"} 1',
      'phaselock_lock_acquisitions_total{lock="nightly",result="error"} 0',
      // Who didn't want to wait isn't among them.
      'phaselock_lock_wait_seconds_count{lock="nightly"} 3',
      'phaselock_lock_hold_seconds_count{lock="nightly"} 1',
      'phaselock_locks_held{lock="nightly"} 0',
      'phaselock_locks_lost_total{lock="nightly"} 0',
      // A name that nobody listed is no label.
      'phaselock_lock_acquisitions_total{lock="",result="acquired"} 1',
    ]) {
      expect(text).toContain(line)
    }
    expect(text).not.toContain('tenant-42')
  })

  test('a lock that was freed under its task is lost, once, and held no more', async () => {
    const { db } = database
    const metrics = lockMetrics({ names: (name) => name })
    const provider = mongoLockProvider(db, { name: 'ours' })
    const executor = new LockExecutor(provider, { observer: metrics.observer })
    await executor.executeWithLock(
      async ({ signal, extend }) => {
        await provider.release('freed')
        await expect(extend('1h')).rejects.toThrow('expected to hold the lock')
        expect(signal.aborted).toBe(true)
        expect(await metrics.registry.metrics()).toContain('phaselock_locks_held{lock="freed"} 0')
      },
      { name: 'freed', lockAtMostFor: '1h' },
    )
    const text = await metrics.registry.metrics()
    expect(text).toContain('phaselock_locks_lost_total{lock="freed"} 1')
    expect(text).toContain('phaselock_locks_held{lock="freed"} 0')
    expect(text).toContain('phaselock_lock_hold_seconds_count{lock="freed"} 1')
  })

  test('a server that is away: errors of those who ask, failed renewals of those who hold', async () => {
    const metrics = lockMetrics({ names: ['report'] })
    const inner = memoryLocks()
    let isAway = false
    const away = () => Promise.reject(new Error('connection refused'))
    const provider = {
      kind: 'switched',
      async lock(config: Parameters<typeof inner.lock>[0]) {
        if (isAway) return away()
        const lock = await inner.lock(config)
        return lock && { ...lock, lockUntil: lock.lockUntil, extend: away, unlock: away }
      },
    }
    const executor = new LockExecutor(provider, { observer: metrics.observer })
    const report = { name: 'report', lockAtMostFor: '1h', watchdog: '5ms' }
    const failures = /^phaselock_lock_commands_failed_total\{lock="report",action="extend"\} ([1-9]\d*)$/m
    await executor.executeWithLock(async () => {
      await eventually(async () => failures.test(await metrics.registry.metrics()))
    }, report)
    isAway = true
    await expect(executor.executeWithLock(() => 1, { ...report, name: 'other' })).rejects.toThrow('connection refused')
    const text = await metrics.registry.metrics()
    expect(text).toContain('phaselock_lock_commands_failed_total{lock="report",action="unlock"} 1')
    expect(text).toContain('phaselock_lock_acquisitions_total{lock="",result="error"} 1')
  })

  test("all executors of a process, whoever made them; a refused configuration is nobody else's fault", async () => {
    const metrics = lockMetrics()
    ended.push(observeLocks(metrics.observer))
    await new LockExecutor(memoryLocks()).executeWithLock(() => 1, { name: 'a', lockAtMostFor: '1h' })
    await new LockExecutor(memoryLocks()).executeWithLock(() => 1, { name: 'a', lockAtMostFor: '1h' })
    const wrong = new LockExecutor(memoryLocks()).executeWithLock(() => 1, { name: '', lockAtMostFor: '1h' })
    await expect(wrong).rejects.toThrow("can't be used")
    const text = await metrics.registry.metrics()
    expect(text).toContain('phaselock_lock_acquisitions_total{lock="",result="acquired"} 2')
    expect(text).toContain('phaselock_lock_acquisitions_total{lock="",result="error"} 0')
  })

  test('labels stay few, whatever a function makes of names', async () => {
    const series = async (names: LockNames) => {
      const { observer, registry } = lockMetrics({ names })
      for (let i = 0; i < 500; i++) observer.lost({ name: `tenant-${i}-sync`, lockedBy: `x#${i}` })
      return (await registry.metrics()).match(/^phaselock_locks_lost_total\{.*$/gm)!
    }
    expect(await series((name) => name.replace(/-\d+-/, '-'))).toEqual([
      'phaselock_locks_lost_total{lock=""} 0',
      'phaselock_locks_lost_total{lock="tenant-sync"} 500',
    ])
    const each = await series((name) => name)
    expect(each).toHaveLength(201)
    expect(each[0]).toBe('phaselock_locks_lost_total{lock=""} 300')
  })
})
