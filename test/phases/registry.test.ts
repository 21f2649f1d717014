import { afterEach, describe, expect, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { KNOWN_FOR_MS, LIFECYCLES_COLLECTION, lockTimeoutAt, ServerClock } from '../../src/lock/index.js'
import { LifecycleRegistry } from '../../src/phases/engine/registry/lifecycle-registry.js'
import { useDatabase } from '../support/database.js'
import { recordingLogger, ShiftedClock, thing } from '../support/thing.js'

const { model } = thing

describe('the lockTimeout that a replica goes by', () => {
  const database = useDatabase()
  let client: MongoClient | undefined
  afterEach(async () => {
    await client?.close()
  })

  /** A registry that has just read, and what happens each time that it has read again. */
  async function registered(onRead: (clock: ShiftedClock, reads: number) => void = () => undefined) {
    const clock = new ShiftedClock()
    client = await new MongoClient(database.uri, { monitorCommands: true }).connect()
    let reads = 0
    const registry = new LifecycleRegistry(
      database.db,
      client.db(database.db.databaseName),
      [model],
      recordingLogger(),
      clock,
      new ServerClock(clock),
    )
    await registry.register()
    client.on('commandSucceeded', ({ commandName }) => {
      if (commandName !== 'aggregate') return
      reads += 1
      onRead(clock, reads)
    })
    const keptFresh = async () => {
      try {
        await registry.keepFresh()
        return 'fresh'
      } catch (error) {
        return (error as Error).name
      }
    }
    const setTo = (lockTimeout: number) =>
      database.db.collection(LIFECYCLES_COLLECTION).updateOne({ _id: model.name as never }, { $set: { lockTimeout } })
    return { registry, clock, keptFresh, setTo, reads: () => reads }
  }

  test('is read again when it comes of age, not before', async () => {
    const { registry, clock, keptFresh, setTo, reads } = await registered()
    await setTo(45_000)
    await keptFresh()
    expect(reads()).toBe(0)
    expect(registry.lockTimeout(model).dueMs).toBe(30_000)
    clock.advance(KNOWN_FOR_MS / 2)
    expect(await keptFresh()).toBe('fresh')
    expect(reads()).toBe(1)
    expect(registry.lockTimeout(model).dueMs).toBe(45_000)
  })

  test('is read once more when this process stood still after its reply had come', async () => {
    const { clock, keptFresh, reads } = await registered((time, nth) => {
      if (nth === 1) time.advance(60_000)
    })
    clock.advance(KNOWN_FOR_MS)
    expect(await keptFresh()).toBe('fresh')
    expect(reads()).toBe(2)
  })

  test('is not gone by where each reading is too old: a bounded number of them, and an error', async () => {
    const { clock, keptFresh, reads } = await registered((time) => time.advance(KNOWN_FOR_MS))
    clock.advance(KNOWN_FOR_MS)
    expect(await keptFresh()).toBe('TermsOutdated')
    expect(reads()).toBe(3)
  })

  test('a look that was asked before and answers after a reading changes nothing', async () => {
    const { registry, clock, keptFresh, setTo } = await registered()
    const asked = clock.monotonicMs()
    const answer = lockTimeoutAt({ lockTimeout: 30_000 }, new Date())!
    clock.advance(KNOWN_FOR_MS)
    await setTo(60_000)
    await keptFresh()
    const { knownUntil } = registry.lockTimeout(model)
    const lockTimeouts = new Map([[model.name, answer]])
    expect(registry.adopt({ lockTimeouts, sentAtMs: asked })).toBe(true)
    expect(registry.lockTimeout(model)).toMatchObject({ dueMs: 60_000, knownUntil })
    expect(registry.adopt({ lockTimeouts, sentAtMs: clock.monotonicMs() })).toBe(true)
    expect(registry.lockTimeout(model)).toMatchObject({ dueMs: 30_000 })
  })
})
