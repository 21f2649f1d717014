import { expect, jest, test } from '@jest/globals'
import type { MongoClient } from 'mongodb'
import { runReplica } from '../../src/cli/start/run-replica.js'
import { readSettings } from '../../src/config/index.js'
import { connectDatabase } from '../../src/database/index.js'
import { silentLogger } from '../../src/index.js'
import { pauseWork } from '../../src/operations/index.js'
import { clientAt } from '../lock/fixture.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { gate, ShiftedClock, thing, thingOf, things, thingWith } from '../support/thing.js'
import { expectFiring, expectQuiet, useWatched } from './support/incident.js'
import { Scrapes } from './support/prometheus.js'
import { describeWithGo, START_TIMEOUT_MS } from './support/render.js'

jest.setTimeout(START_TIMEOUT_MS)

/** Nothing of it is ever claimed: nobody has set its limit. */
const unclaimed = thingWith(async (_doc, step) => step.moveTo('Created'), thingOf({ limits: ['unset'] }))

describeWithGo('an alert fires in Prometheus when its incident has happened to a replica and its documents:', () => {
  const watched = useWatched()
  const closing: (() => Promise<unknown>)[] = []
  const database = useDatabase()
  const insert = (...ids: string[]) => things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating' })))

  /** The database, whose clock a test can step, and which it can take away. */
  async function proxied() {
    const proxy = await TcpProxy.start(database.uri)
    const client: MongoClient = await clientAt(proxy.uri, { serverSelectionTimeoutMS: 500 })
    closing.push(
      () => client.close(),
      () => proxy.stop(),
    )
    return { proxy, db: client.db(database.db.databaseName) }
  }
  const close = async () => {
    for (const one of closing.splice(0)) await one()
  }

  test('PhaselockNoReplica', async () => {
    const scrapes = new Scrapes()
    const connection = await connectDatabase({ uri: database.uri })
    const settings = readSettings({}, { http: '0', httpHost: '127.0.0.1', doorbell: 'off' })
    const lifecycle = thingWith(async (_doc, step) => step.moveTo('Created'))
    const running = await runReplica({ connection, lifecycles: [lifecycle] }, settings, silentLogger)
    const scraped = async () => {
      const answer = await fetch(`${running.http}/metrics`).catch(() => undefined)
      return answer?.text()
    }
    scrapes.add(await scraped(), 10)
    await expectQuiet(scrapes, 'PhaselockNoReplica')
    await running.stop()
    scrapes.add(await scraped(), 5)
    await expectFiring(scrapes, 'PhaselockNoReplica')
  })

  test('PhaselockDueTooLong: fifty documents with text for an _id, inserted by another client, which nobody takes', async () => {
    const { proxy, db } = await proxied()
    const clock = new ShiftedClock()
    const one = watched(db, unclaimed, { clock })
    await one.replica.prepare()
    const pass = async (s: number) => {
      proxy.stepClock(s * 1_000)
      clock.advance(s * 1_000)
      await one.replica.tick()
      await one.scrape()
    }
    await insert(...Array.from({ length: 50 }, (_, i) => `order-${i}`))
    for (let s = 0; s <= 60; s += 15) await pass(15)
    await one.quiet('PhaselockDueTooLong')
    for (let s = 0; s <= 120; s += 15) await pass(15)
    await one.fires('PhaselockDueTooLong', { lifecycle: 'thing', phase: 'Creating' })
    await one.replica.stop()
    await close()
  })

  test('PhaselockDocumentsParked', async () => {
    const one = watched(
      database.db,
      thingWith(async (_doc, step) => step.park('no such customer')),
    )
    await one.replica.prepare()
    await insert('a')
    await one.scrape(120)
    await one.quiet('PhaselockDocumentsParked')
    await one.replica.runOnce()
    await one.scrape(75)
    await one.fires('PhaselockDocumentsParked', { lifecycle: 'thing', phase: 'Creating' })
  })

  test('PhaselockDatabaseAway, PhaselockReplicaNotReady', async () => {
    const { proxy, db } = await proxied()
    const clock = new ShiftedClock()
    const one = watched(
      db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
      { clock },
    )
    await one.replica.start()
    await one.scrape(600)
    await one.quiet('PhaselockDatabaseAway')
    await one.quiet('PhaselockReplicaNotReady')
    proxy.refuse()
    await eventually(() => {
      clock.advance(5_000)
      expect(one.replica.status().notReady).toEqual(['the database does not answer'])
    })
    await one.scrape(315)
    await one.fires('PhaselockDatabaseAway')
    await one.fires('PhaselockReplicaNotReady', { pod: 'p1' })
    proxy.pass()
    await one.replica.stop()
    await close()
  })

  test('PhaselockStepsFail', async () => {
    let fails = false
    const one = watched(
      database.db,
      thingWith(async (_doc, step) => {
        if (fails) throw new Error('the shop is away')
        return step.moveTo('Created')
      }),
    )
    await one.replica.prepare()
    const minute = async (i: number) => {
      await insert(`${fails}${i}`)
      await one.replica.runOnce()
      await one.scrape(60)
    }
    for (let i = 0; i < 12; i += 1) await minute(i)
    await one.quiet('PhaselockStepsFail')
    fails = true
    for (let i = 0; i < 14; i += 1) await minute(i)
    await one.fires('PhaselockStepsFail', { lifecycle: 'thing', phase: 'Creating' })
  })

  test('PhaselockLeasesLost: a dozen at once, the first ones of this replica', async () => {
    const one = watched(
      database.db,
      thingWith(async (doc, step) => {
        await things(database.db).updateOne({ _id: doc._id }, { $set: { lockedBy: 'another~1#1.1' } })
        return step.moveTo('Created')
      }),
    )
    await one.replica.prepare()
    await one.scrape(60)
    await insert(...Array.from({ length: 12 }, (_, i) => `d${i}`))
    await one.replica.runOnce()
    await one.scrape(60)
    await one.fires('PhaselockLeasesLost', { lifecycle: 'thing' })
  })

  test('PhaselockHandlersAbandoned', async () => {
    const end = gate()
    const settings = { lockTimeout: '1s', stepTimeout: '200ms', backOff: { firstError: '1h', longestError: '1h' } }
    const one = watched(
      database.db,
      thingWith(async (_doc, step) => {
        await end.wait
        return step.moveTo('Created')
      }, thingOf(settings)),
    )
    await insert('a')
    await one.scrape(615)
    await one.quiet('PhaselockHandlersAbandoned')
    await one.replica.runOnce()
    await one.scrape(615)
    await one.fires('PhaselockHandlersAbandoned', { pod: 'p1' })
    end.open()
  })

  test('PhaselockDocumentsSkipped', async () => {
    await database.db.createCollection('Thing', { validator: { lockedBy: { $exists: false } } })
    const one = watched(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    )
    await one.replica.prepare()
    await one.scrape(615)
    await one.quiet('PhaselockDocumentsSkipped')
    await insert('a')
    await one.replica.runOnce()
    await one.scrape(615)
    await one.fires('PhaselockDocumentsSkipped', { pod: 'p1' })
  })

  test('PhaselockNobodyTakes', async () => {
    const one = watched(database.db, unclaimed)
    await one.replica.prepare()
    const runDuties = () => (one.replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll()
    await one.scrape(915)
    await one.quiet('PhaselockNobodyTakes')
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', createdAt: new Date(Date.now() - 120_000) })
    await one.replica.tick()
    await one.replica.idle()
    await runDuties()
    await one.scrape(915)
    await one.fires('PhaselockNobodyTakes', { lifecycle: 'thing', phase: 'Creating', why: 'limit' })
  })

  test('PhaselockPausedForLong', async () => {
    const one = watched(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    )
    await one.replica.prepare()
    await one.replica.tick()
    await one.scrape(60)
    await pauseWork({ db: database.db, models: [thing.model] }, { lifecycle: 'thing', phase: 'Creating', by: 'ana' })
    await one.replica.tick()
    await one.scrape(85_995)
    await one.quiet('PhaselockPausedForLong')
    await one.scrape(600)
    await one.fires('PhaselockPausedForLong', { lifecycle: 'thing', what: 'phase', phase: 'Creating' })
  })
})
