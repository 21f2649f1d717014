import { describe, expect, jest, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { protocolClientOptions } from '../../src/database/index.js'
import { AbandonedAcquisitions } from '../../src/locks/abandoned.js'
import { holderIdentity } from '../../src/locks/acquisition.js'
import { LockProviderUnavailable } from '../../src/locks/errors.js'
import type { LockStore, Request } from '../../src/locks/lock-store.js'
import { NamedLocks } from '../../src/locks/named-locks.js'
import { MemoryLockStore } from '../../src/locks/providers/memory.js'
import { MongoLockStore } from '../../src/locks/providers/mongodb.js'
import { eventually, testDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { describeLostAnswer } from './lossy.js'

jest.setTimeout(240_000)

describeLostAnswer('mongodb', async (closes) => {
  const { uri, db } = closes(await testDatabase(), ({ drop }) => drop())
  const proxy = closes(await TcpProxy.start(uri), (one) => one.stop())
  const options = { ...protocolClientOptions(9_000), retryWrites: false }
  const client = closes(await new MongoClient(proxy.uri, options).connect(), (one) => one.close())
  return {
    store: new MongoLockStore(client.db()),
    beside: new MongoLockStore(db),
    loseAnswer: () => proxy.cutAfter('findAndModify'),
  }
})

describeLostAnswer('memory', async () => {
  const beside = new MemoryLockStore()
  let lost: (() => void) | undefined
  class LossyStore extends MemoryLockStore {
    override async take(request: Request) {
      const granted = await beside.take(request)
      if (!lost) return granted
      lost()
      lost = undefined
      throw new Error('the answer was lost')
    }
    override free(...args: Parameters<LockStore['free']>) {
      return beside.free(...args)
    }
  }
  return { store: new LossyStore(), beside, loseAnswer: () => new Promise<void>((resolve) => (lost = resolve)) }
})

test('a grant that comes after its lockAtMostFor is none, and is freed', async () => {
  const store = new MemoryLockStore()
  const clock = { now: () => new Date(), nowMs: 0, monotonicMs: () => clock.nowMs }
  const take = store.take.bind(store)
  store.take = async (request) => {
    clock.nowMs += 3_600_000
    return await take(request)
  }
  const locks = new NamedLocks(store, holderIdentity('paused'), clock)
  expect(await locks.lock({ name: 'late', lockAtMostFor: '1h' })).toBeUndefined()
  await eventually(async () => (await locks.find('late'))?.held === false)
})

test('a mistake in the code is told as it is, never as an absent server; what it may have taken is freed', async () => {
  const store = new MemoryLockStore()
  const take = store.take.bind(store)
  const mistake = new TypeError('lockedBy.endsWith is not a function')
  store.take = async (request) => {
    await take(request)
    throw mistake
  }
  store.list = async () => {
    throw mistake
  }
  const locks = new NamedLocks(store, holderIdentity('mistaken'))
  await expect(locks.list()).rejects.toBe(mistake)
  await expect(locks.lock({ name: 'x', lockAtMostFor: '1h' })).rejects.toBe(mistake)
  await eventually(async () => (await locks.find('x'))?.held === false)
  await locks.close()
})

test('an acquisition that is still to be freed is freed before the name is asked for again', async () => {
  const store = new MemoryLockStore()
  const order: string[] = []
  const [take, free] = [store.take.bind(store), store.free.bind(store)]
  let isAway = true
  store.take = async (request) => {
    const granted = await take(request)
    order.push(granted ? 'granted' : 'refused')
    if (isAway) throw new Error('the answer was lost')
    return granted
  }
  store.free = async (...args) => {
    if (isAway) throw new Error('away')
    order.push('freed')
    return await free(...args)
  }
  const locks = new NamedLocks(store, holderIdentity('again'))
  await expect(locks.lock({ name: 'x', lockAtMostFor: '1h' })).rejects.toThrow(LockProviderUnavailable)
  // Not even the free is answered: nothing is asked for.
  await expect(locks.lock({ name: 'x', lockAtMostFor: '1h' })).rejects.toThrow(/away; no lock was requested/)
  isAway = false
  expect(await locks.lock({ name: 'x', lockAtMostFor: '1h' })).toBeDefined()
  expect(order).toEqual(['granted', 'freed', 'granted'])
  await locks.close()
})

describe('in the background', () => {
  test('one that arrives late is freed then; the tries have an end', async () => {
    const tried: string[] = []
    let isThere = false
    const abandoned = new AbandonedAcquisitions(
      async (name, token) => {
        tried.push(`${name} ${token}`)
        if (tried.length === 3) isThere = true
        if (tried.length === 2) throw new Error('the server is away')
        return isThere
      },
      [0, 1, 1, 1, 1],
    )
    abandoned.add('late', 'a#1')
    await eventually(() => isThere)
    await abandoned.close()
    expect(tried).toEqual(['late a#1', 'late a#1', 'late a#1'])

    let count = 0
    const never = new AbandonedAcquisitions(async () => ++count < 0, [0, 1, 1, 1, 1])
    never.add('never', 'a#1')
    await eventually(() => count === 5)
    // Nothing is left to free before the name is asked for again.
    await eventually(async () => {
      const before = count
      await never.clear('never')
      return count === before
    })
  })

  test('a thousand of them are freed one after the other', async () => {
    let [running, most, freed] = [0, 0, 0]
    const abandoned = new AbandonedAcquisitions(async () => {
      most = Math.max(most, ++running)
      await new Promise((resolve) => setImmediate(resolve))
      running -= 1
      freed += 1
      return true
    })
    for (let i = 0; i < 1_000; i++) abandoned.add(`lock ${i}`, 'a#1')
    await eventually(() => freed === 1_000)
    expect(most).toBe(1)
  })

  test('those that were dropped, as there are too many, stand in no line: the server is asked for the kept ones only', async () => {
    const answers: (() => void)[] = []
    let asked = 0
    const abandoned = new AbandonedAcquisitions(async () => {
      asked += 1
      if (asked === 1) await new Promise<void>((resolve) => answers.push(resolve))
      return true
    })
    abandoned.add('lock', 'a#0')
    await eventually(() => answers.length === 1)
    for (let i = 1; i <= 200; i++) {
      abandoned.add('lock', `a#${i}`)
      await new Promise((resolve) => setTimeout(resolve, 1)) // each stands in the line before the next is added
    }
    answers[0]!()
    await eventually(() => asked >= 17)
    await abandoned.close()
    expect(asked).toBe(17)
  })

  test('closing waits for the try that is under way, and for no other', async () => {
    const answers: (() => void)[] = []
    const abandoned = new AbandonedAcquisitions(() => new Promise((resolve) => answers.push(() => resolve(false))))
    for (const name of ['a', 'b', 'c']) abandoned.add(name, 'a#1')
    await eventually(() => answers.length === 1)
    const closed = abandoned.close()
    answers[0]!()
    await closed
    expect(answers).toHaveLength(1)
  })
})
