import { readFile } from 'node:fs/promises'
import { expect, jest, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { memory, repositories } from 'phaselock-repositories'
import { lifecycleOf } from '../../src/index.js'
import { CLAIM_INDEX } from '../../src/lock/index.js'
import { LockExecutor, mongoLockProvider } from '../../src/locks/index.js'
import { EVENTS_COLLECTION } from '../../src/phases/events/events.js'
import { replicaMetrics } from '../../src/telemetry/index.js'
import { clientAt } from '../lock/fixture.js'
import { BulkWorld } from '../operations/bulk-world.js'
import { jobsWith } from '../phases/callbacks-fixture.js'
import { dueSchedule, useSchedulers } from '../schedules/support.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { backDate, things, thingWith } from '../support/thing.js'
import { expectFiring, expectQuiet, useWatched } from './support/incident.js'
import { rulesOf, Scrapes } from './support/prometheus.js'
import { describeWithGo, START_TIMEOUT_MS } from './support/render.js'

jest.setTimeout(START_TIMEOUT_MS)

describeWithGo('an alert fires in Prometheus when its incident has happened to', () => {
  const watched = useWatched()
  const scheduler = useSchedulers()
  const database = useDatabase()

  test('runs of a schedule: PhaselockRunsFail, the first one ever', async () => {
    const { db } = database
    const work = async () => {
      throw new Error('the shop is away')
    }
    const one = scheduler(db, { tasks: { work } })
    const metrics = replicaMetrics({ db, lifecycles: one.schedules.lifecycles, processMetrics: false })
    const scrapes = new Scrapes()
    scrapes.add(await metrics.registry.metrics(), 4)
    await expectQuiet(scrapes, 'PhaselockRunsFail')
    await dueSchedule(one, db)
    await one.replica.runOnce()
    scrapes.add(await metrics.registry.metrics(), 4)
    await expectFiring(scrapes, 'PhaselockRunsFail', { task: 'work', outcome: 'Failed' })
  })

  test('a schedule: PhaselockSchedulesBroken', async () => {
    const { db } = database
    const one = scheduler(db, { tasks: { work: async () => undefined } })
    const metrics = replicaMetrics({ db, lifecycles: one.schedules.lifecycles, processMetrics: false })
    const scrapes = new Scrapes()
    await dueSchedule(one, db)
    await one.replica.runOnce()
    scrapes.add(await metrics.registry.metrics(), 10)
    await expectQuiet(scrapes, 'PhaselockSchedulesBroken')
    const unlocked = { cron: 'whenever', lockedAt: new Date(0) }
    await db.collection<{ _id: string }>('schedules').updateOne({ _id: 's' }, { $set: unlocked })
    await one.replica.runOnce()
    scrapes.add(await metrics.registry.metrics(), 5)
    await expectFiring(scrapes, 'PhaselockSchedulesBroken', { lifecycle: 'schedules' })
  })

  test('a named lock: PhaselockLocksLost, the first one ever', async () => {
    const { db } = database
    const metrics = replicaMetrics({ db, lifecycles: [], processMetrics: false })
    const provider = mongoLockProvider(db, { name: 'ours' })
    const executor = new LockExecutor(provider, { observer: metrics.locks })
    const scrapes = new Scrapes()
    scrapes.add(await metrics.registry.metrics(), 4)
    await executor.executeWithLock(
      async ({ extend }) => {
        await provider.release('nightly')
        await expect(extend('1h')).rejects.toThrow('expected to hold the lock')
      },
      { name: 'nightly', lockAtMostFor: '1h' },
    )
    scrapes.add(await metrics.registry.metrics(), 4)
    await expectFiring(scrapes, 'PhaselockLocksLost')
  })

  test('the server of named locks: PhaselockLocksUnavailable', async () => {
    const proxy = await TcpProxy.start(database.uri)
    const client = await clientAt(proxy.uri, { serverSelectionTimeoutMS: 100 })
    const metrics = replicaMetrics({ db: database.db, lifecycles: [], processMetrics: false })
    const provider = mongoLockProvider(client.db(database.db.databaseName), { name: 'ours' })
    const executor = new LockExecutor(provider, { observer: metrics.locks })
    const nightly = { name: 'nightly', lockAtMostFor: '1h' }
    await executor.executeWithLock(() => 1, nightly)
    const scrapes = new Scrapes()
    scrapes.add(await metrics.registry.metrics(), 40)
    await expectQuiet(scrapes, 'PhaselockLocksUnavailable')
    proxy.refuse()
    for (let minute = 0; minute < 7; minute += 1) {
      await expect(executor.executeWithLock(() => 1, nightly)).rejects.toThrow()
      scrapes.add(await metrics.registry.metrics(), 4)
    }
    await expectFiring(scrapes, 'PhaselockLocksUnavailable')
    await client.close()
    await proxy.stop()
  })

  test('callbacks: PhaselockCallbacksGivenUp, the first one ever', async () => {
    const { lifecycle } = jobsWith(() => {
      throw new Error('the shop is away')
    })
    const one = watched(database.db, lifecycle)
    await one.replica.prepare()
    await one.scrape(60)
    await database.db.collection<Document & { _id: string }>('Job').insertOne({ _id: 'j', phase: 'First' })
    for (let i = 0; i < 4; i += 1) {
      await one.replica.runOnce()
      await backDate(database.db, 'j', 30_000, 'Job')
    }
    await one.scrape(60)
    await one.fires('PhaselockCallbacksGivenUp', { lifecycle: 'job', callback: 'onMoved' })
  })

  test('events: PhaselockEventsLost, the first ones ever', async () => {
    await database.db.createCollection(EVENTS_COLLECTION, { validator: { never: true } })
    const lifecycle = lifecycleOf<{ _id: string }>()
      .define({
        name: 'thing',
        collection: 'Thing',
        phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
        events: 'full',
      })
      .handle({ Creating: async (_doc, step) => step.moveTo('Created') })
    const one = watched(database.db, lifecycle)
    await one.replica.prepare()
    await one.scrape(60)
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await one.replica.runOnce()
    await one.replica.stop()
    await one.scrape(60)
    await one.fires('PhaselockEventsLost', { lifecycle: 'thing' })
  })

  test('operations on many documents: PhaselockOperationsStuck', async () => {
    const world = await BulkWorld.of(database.db)
    const one = watched(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    )
    await one.replica.prepare()
    await one.scrape(915)
    await one.quiet('PhaselockOperationsStuck')
    await world.things.insertOne({ _id: 'a', phase: 'Creating', lockedAt: new Date('9999-12-31') })
    await world.begin('unpark', { parked: true })
    await one.scrape(915)
    await one.fires('PhaselockOperationsStuck', { condition: 'waiting' })
  })

  test('a duty: PhaselockDutyFails', async () => {
    const one = watched(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    )
    const runDuties = () => (one.replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll()
    await one.replica.prepare()
    await one.replica.tick()
    await runDuties()
    await one.scrape(915)
    await one.quiet('PhaselockDutyFails')
    await things(database.db).dropIndex(Object.entries(CLAIM_INDEX).flat().join('_'))
    const duties = database.db.collection('phaselock.duties')
    await duties.updateMany({}, { $set: { begunAt: new Date(0) } }) // its five minutes are over
    await runDuties()
    await one.scrape(915)
    await one.fires('PhaselockDutyFails', { duty: 'census of thing' })
  })

  test('a repository: PhaselockRepositoriesBehind', async () => {
    const { db } = database
    const embeddings = { model: 'none', dimensions: 1, embed: async () => ({}) as never }
    const { lifecycles } = repositories({ db, store: memory(), embeddings })
    const metrics = replicaMetrics({ db, lifecycles, processMetrics: false })
    const shop = db.collection<Document & { _id: string }>('Repository')
    const schedule = { every: '6h' }
    await shop.insertOne({ _id: 'shop', phase: 'Created', schedule, url: 'https://git.example/a', collection: 'code' })
    const succeeded = (hoursAgo: number) =>
      shop.updateOne({}, [{ $set: { 'synced.at': { $subtract: ['$$NOW', hoursAgo * 3_600_000] } } }])
    const scrapes = new Scrapes()
    await succeeded(11)
    scrapes.add(await metrics.registry.metrics(), 25)
    await expectQuiet(scrapes, 'PhaselockRepositoriesBehind')
    await succeeded(13)
    scrapes.add(await metrics.registry.metrics(), 25)
    await expectFiring(scrapes, 'PhaselockRepositoriesBehind', { repository: 'shop' })
  })
})

test('each alert has its incident', async () => {
  const files = ['alerts.test.ts', 'alerts-others.test.ts']
  const texts = await Promise.all(files.map((name) => readFile(new URL(name, import.meta.url), 'utf8')))
  const fired = texts.flatMap((text) => [...text.matchAll(/(?:fires\(|expectFiring\(scrapes, )'(\w+)'/g)])
  const rules = (await rulesOf()).groups.flatMap(({ rules }) => rules)
  const alerts = rules.flatMap(({ alert }) => (alert === undefined ? [] : [alert]))
  expect([...new Set(fired.map(([, alert]) => alert))].sort()).toEqual(alerts.sort())
})
