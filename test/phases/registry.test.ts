import { afterEach, describe, expect, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { NoAnswer, protocolClientOptions, protocolCollection } from '../../src/database/index.js'
import { KNOWN_FOR_MS, LIFECYCLES_COLLECTION, lockTimeoutAt, ServerClock } from '../../src/lock/index.js'
import { LifecycleRegistry } from '../../src/phases/engine/registry/lifecycle-registry.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { recordingLogger, ShiftedClock, thing } from '../support/thing.js'

const { model } = thing

describe('the lockTimeout that a replica goes by', () => {
  const database = useDatabase()
  let client: MongoClient | undefined
  afterEach(async () => {
    await client?.close()
  })

  /** A registry that has just read, and what happens each time that it has read again. */
  async function registered(onRead: (clock: ShiftedClock, reads: number) => void = () => undefined, db = database.db) {
    const clock = new ShiftedClock()
    client = await new MongoClient(database.uri, { monitorCommands: true }).connect()
    let reads = 0
    const registry = new LifecycleRegistry(
      db,
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

  test('ends the commands of clients that were made for a longer one, while it is shorter', async () => {
    const proxy = await TcpProxy.start(database.uri)
    const made = await new MongoClient(proxy.uri, protocolClientOptions(6_000)).connect()
    try {
      const db = made.db(database.db.databaseName)
      const { clock, keptFresh, setTo } = await registered(undefined, db)
      const things = protocolCollection(db, model.collection)
      const givenUp = async () => {
        const held = proxy.hold('find')
        const finding = things.findOne({}).catch((error: unknown) => error)
        await held.then(({ release }) => finding.then(release))
        return await finding
      }
      await setTo(1_500)
      clock.advance(KNOWN_FOR_MS)
      await keptFresh()
      const error = await givenUp()
      expect(error).toBeInstanceOf(NoAnswer)
      expect((error as NoAnswer).afterMs).toBe(500 + 500)
      await setTo(30_000)
      clock.advance(KNOWN_FOR_MS)
      await keptFresh()
      expect(await givenUp()).not.toBeInstanceOf(NoAnswer) // but the driver's own limit, after 2 s, and it tries again
    } finally {
      await made.close()
      await proxy.stop()
    }
  })
})
