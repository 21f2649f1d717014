import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import type { Document, MongoClient } from 'mongodb'
import { protocolClient, protocolClientOptions } from '../../src/database/index.js'
import { LeaseLost, Replica } from '../../src/index.js'
import type { HistoryEntry } from '../../src/lock/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import {
  type CreatingHandler,
  gate,
  recordingObserver,
  replicaOf,
  thingOf,
  things,
  thingWith,
} from '../support/thing.js'

describe('a checkpoint', () => {
  const database = useDatabase()

  async function run(handler: CreatingHandler) {
    const { db } = database
    const observer = recordingObserver()
    const replica = new Replica({ db, lifecycles: [thingWith(handler)], observer })
    await things(db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.runOnce()
    await replica.stop()
    return { document: await things(db).findOne({ _id: 'a' }), losses: observer.losses }
  }

  test("that the handler forgot to wait for doesn't cost the step its outcome", async () => {
    const { document, losses } = await run(async (_doc, step) => {
      void step.checkpoint({ n: 7 })
      return step.moveTo('Created')
    })
    expect(document).toMatchObject({ phase: 'Created', n: 7 })
    expect(losses).toEqual([])
  })

  test('beside another: both are stored, in their order', async () => {
    const { document } = await run(async (_doc, step) => {
      await Promise.all([step.checkpoint({ n: 1, effects: ['x'] }), step.checkpoint({ n: 2 })])
      return step.moveTo('Created')
    })
    expect(document).toMatchObject({ phase: 'Created', n: 2, effects: ['x'] })
  })

  test('that nobody waits for, on a lease that was taken: nothing is stored, and the process lives on', async () => {
    const { document, losses } = await run(async (_doc, step) => {
      await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedBy: 'other~1#1.1' } })
      void step.checkpoint({ n: 7 })
      return step.moveTo('Created')
    })
    expect(document).toMatchObject({ phase: 'Creating', lockedBy: 'other~1#1.1' })
    expect(document).not.toHaveProperty('n')
    expect(losses).toMatchObject([{ how: 'refused' }])
  })

  test('on a lease that was taken throws LeaseLost to the handler that waits for it', async () => {
    let thrown: unknown
    await run(async (_doc, step) => {
      await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedBy: 'other~1#1.1' } })
      await step.checkpoint({ n: 7 }).catch((error: unknown) => {
        thrown = error
      })
      return step.moveTo('Created')
    })
    expect(thrown).toBeInstanceOf(LeaseLost)
  })
})

describe('a checkpoint whose outcome is in doubt when its step is given up', () => {
  const database = useDatabase()
  let proxy: TcpProxy
  let client: MongoClient

  beforeEach(async () => {
    proxy = await TcpProxy.start(database.uri)
    client = await protocolClient(proxy.uri, protocolClientOptions(30_000)).connect()
  })
  afterEach(async () => {
    await client.close()
    await proxy.stop()
  })

  const read = async (id: string) => (await things(database.db).findOne({ _id: id })) as Document
  const isCheckpoint = ({ name, body }: { name: string; body: Document }) =>
    name === 'update' && JSON.stringify(body).includes('"outcome":{"$literal":"checkpoint"}')
  const isReadBack = ({ name, body }: { name: string; body: Document }) =>
    name === 'find' && body['readConcern']?.level === 'majority'

  test.each([
    ['it never arrived', 'cutBefore'],
    ['it was executed', 'cutAfter'],
  ] as const)('%s: the error waits for it, and nobody else does; its handler is told the truth', async (_name, cut) => {
    const observer = recordingObserver()
    const over = gate()
    let stored: unknown
    const handler: CreatingHandler = async (doc, step) => {
      if (doc._id === 'other') return step.moveTo('Created')
      stored = await step.checkpoint({ n: 7 }).catch((error: unknown) => error)
      stored ??= 'stored'
      await over.wait
      return step.moveTo('Created')
    }
    const settings = { lockTimeout: '2s', stepTimeout: '100ms', backOff: { firstError: '10m', longestError: '10m' } }
    const replica = replicaOf(client.db(database.db.databaseName), thingWith(handler, thingOf(settings)), {
      renewalDb: database.db,
      observer,
    })
    await replica.prepare()
    void proxy[cut](isCheckpoint)
    const reading = proxy.hold(isReadBack)
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.tick()
    const held = await reading
    await eventually(() => expect(replica.status().abandoned).toBe(1))
    // What was sent before this has arrived by then.
    await things(database.db).insertOne({ _id: 'other', phase: 'Creating' })
    await replica.tick()
    await eventually(async () => expect(await read('other')).toMatchObject({ phase: 'Created' }))
    held.release()
    await eventually(async () => expect((await read('a'))['progress'].error?.name).toBe('StepTimeout'))
    await eventually(() => expect(stored).toBe('stored'))
    const found = await read('a')
    expect(found).toMatchObject({ n: 7, phase: 'Creating', progress: { attempts: 1 } })
    const outcomes = found['progress'].history.map(({ outcome }: HistoryEntry) => outcome)
    expect(outcomes).toEqual(['checkpoint', 'error'])
    expect(observer.losses).toEqual([])
    over.open()
    await eventually(() => expect(replica.status().abandoned).toBe(0))
    await replica.stop()
  })
})
