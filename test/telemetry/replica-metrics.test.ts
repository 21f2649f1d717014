import { describe, expect, test } from '@jest/globals'
import { type Document, MongoClient } from 'mongodb'
import { register } from 'prom-client'
import { lifecycleOf, Replica } from '../../src/index.js'
import { DUTIES_COLLECTION, PARKED_AT, TASK_LOCK_INIT_TIME } from '../../src/lock/index.js'
import { beginOperation, pauseWork } from '../../src/operations/index.js'
import { Schedules } from '../../src/schedules/index.js'
import { replicaMetrics } from '../../src/telemetry/index.js'
import { useDatabase } from '../support/database.js'
import { amidRebuild } from '../support/index-rebuild.js'

const thing = lifecycleOf<{ _id: string; state?: 'Deleted' }>().define({
  name: 'thing',
  collection: 'Thing',
  phases: { Creating: { next: ['Created'] }, Created: { rest: true }, Deleted: { final: true } },
  rules: [{ when: 'Deleted', from: ['Created'], moveTo: 'Deleted' }],
  // What waits or has failed isn't due again before the metrics are read, on a busy machine too.
  backOff: { firstError: '1h', longestError: '1h' },
})

describe('the metrics of a replica', () => {
  const database = useDatabase()

  function replicaWithMetrics() {
    const { db } = database
    const bound = thing.handle({
      async Creating(doc, step) {
        if (doc._id === 'waits') return step.wait('rain', { for: '1h' })
        if (doc._id === 'throws') throw new Error('no')
        return step.moveTo('Created')
      },
    })
    const metrics = replicaMetrics({ db, lifecycles: [bound], processMetrics: false })
    const replica = new Replica({ db, lifecycles: [bound], name: 'one', observer: metrics.observer })
    metrics.watch(replica)
    /** The metrics after a census of this moment. */
    const counted = async () => {
      await db.collection(DUTIES_COLLECTION).updateMany({}, { $set: { begunAt: new Date(0) } })
      await (replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll()
      return metrics.registry.metrics()
    }
    return { db, replica, metrics, counted, things: db.collection<{ _id: string } & Document>('Thing') }
  }

  test('what the last census has found, and how the duties went', async () => {
    const { db, replica, metrics, things } = replicaWithMetrics()
    expect(await metrics.registry.metrics()).not.toMatch(/^phaselock_(duty|documents_waiting)\w*\{/m)
    await things.insertMany([{ _id: 'waits', phase: 'Creating' }])
    await replica.runOnce()
    await (replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll()
    const said = await metrics.registry.metrics()
    expect(said).toMatch(/^phaselock_documents_waiting\{lifecycle="thing",on="-"\} 1$/m)
    expect(said).toMatch(/^phaselock_questions_open\{lifecycle="thing"\} 0$/m)
    expect(said).toMatch(/^phaselock_duty_failed\{duty="census of thing"\} 0$/m)
    expect(said).toMatch(/^phaselock_duty_age_seconds\{duty="census of thing"\} 0\.\d+$/m)
    expect(said).toMatch(/^phaselock_operations_open\{condition="running"\} 0$/m)
    await beginOperation({ db, models: [thing.model] } as never, {
      ...{ action: 'wake', selection: { lifecycle: 'thing', phase: 'Creating' }, by: 'ana' },
    })
    expect(await metrics.registry.metrics()).toMatch(/^phaselock_operations_open\{condition="waiting"\} 1$/m)
    await replica.stop()
  })

  test.each<[unknown, string]>([
    [undefined, 'replicaMetrics: expected an object, got undefined'],
    [
      {},
      "replicaMetrics: db: expected a database from the driver (client.db('shop')), got undefined; lifecycles: expected a list of lifecycles",
    ],
    [{ db: { collection() {} }, lifecycles: [5] }, 'replicaMetrics: lifecycles.0: expected a lifecycle, got 5'],
  ])('refuse %j', (given, problem) => {
    expect(() => replicaMetrics(given as never)).toThrow(expect.objectContaining({ name: 'InvalidOptions' }))
    expect(() => replicaMetrics(given as never)).toThrow(problem)
  })

  test('count steps by outcome, claims, ticks, and what is due, parked and held', async () => {
    const { replica, metrics, counted, things } = replicaWithMetrics()
    await replica.prepare()
    const hourAgo = new Date(Date.now() - 3_600_000)
    await things.insertMany([
      { _id: 'a', phase: 'Creating' },
      { _id: 'waits', phase: 'Creating' },
      { _id: 'throws', phase: 'Creating' },
      { _id: 'parked', phase: 'Creating', lockedAt: PARKED_AT },
      { _id: 'gone', phase: 'Created', state: 'Deleted' },
    ])
    expect(await metrics.registry.metrics()).not.toContain('phaselock_documents_due{')
    expect(await counted()).toContain('phaselock_documents_due{lifecycle="thing",phase="Creating"} 3')
    await replica.tick()
    await replica.idle()
    await things.insertOne({
      _id: 'old',
      phase: 'Creating',
      lockedAt: TASK_LOCK_INIT_TIME,
      updatedAt: hourAgo,
    })
    const text = await counted()
    for (const line of [
      'phaselock_steps_total{lifecycle="thing",phase="Creating",outcome="moveTo"} 1',
      'phaselock_steps_total{lifecycle="thing",phase="Creating",outcome="wait"} 1',
      'phaselock_steps_total{lifecycle="thing",phase="Creating",outcome="error"} 1',
      'phaselock_claims_total{lifecycle="thing",phase="Creating"} 3',
      'phaselock_candidates_lost_total{lifecycle="thing",phase="Creating"} 0',
      'phaselock_step_duration_seconds_count{lifecycle="thing",phase="Creating"} 3',
      'phaselock_documents_ruled_total{lifecycle="thing",state="Deleted",to="Deleted"} 1',
      'phaselock_documents_parked{lifecycle="thing",phase="Creating"} 1',
      'phaselock_documents_parked{lifecycle="thing",phase="Created"} 0',
      'phaselock_documents_due{lifecycle="thing",phase="Creating"} 1',
      'phaselock_documents_held 0',
      'phaselock_tick_seconds_count 1',
      'phaselock_ticks_failed_total 0',
      'phaselock_database_up 1',
      `phaselock_replica_info{identity="${replica.identity}"} 1`,
    ]) {
      expect(text).toContain(line)
    }
    const [, oldest] = /phaselock_oldest_due_seconds\{.*\} (\S+)/.exec(text) ?? []
    expect(Number(oldest)).toBeGreaterThan(3_500)
    expect(text).not.toContain('documents_due{lifecycle="thing",phase="Created"}')
    expect(register.getMetricsAsArray()).toEqual([]) // prom-client's global registry
    await replica.stop()
  })

  test('tell what is paused; what is, waits for no replica', async () => {
    const { db, replica, counted, things } = replicaWithMetrics()
    await replica.prepare()
    await things.insertMany([
      { _id: 'a', phase: 'Creating' },
      { _id: 'b', phase: 'Creating' },
    ])
    const system = { db, models: [thing.model] }
    const due = 'phaselock_documents_due{lifecycle="thing",phase="Creating"}'
    for (const id of ['a', 'b']) await pauseWork(system, { lifecycle: 'thing', id, by: 'ana' })
    await replica.runOnce()
    const single = await counted()
    expect(single).toContain('phaselock_paused{lifecycle="thing",what="document",phase=""} 2')
    expect(single).toContain(`${due} 2`)
    await pauseWork(system, { lifecycle: 'thing', phase: 'Creating', by: 'ana' })
    await replica.runOnce()
    const text = await counted()
    expect(text).toContain('phaselock_paused{lifecycle="thing",what="phase",phase="Creating"} 1')
    expect(text).toContain(`${due} 0`)
    expect(text).toContain('phaselock_oldest_due_seconds{lifecycle="thing",phase="Creating"} 0')
    expect(text).toContain('phaselock_replica_ready 1')
    await replica.stop()
  })

  test('count a lost lease by how it was lost', async () => {
    const { metrics } = replicaWithMetrics()
    metrics.observer.leaseLost?.({ lifecycle: 'thing', id: 'a', token: 't', how: 'refused' })
    const text = await metrics.registry.metrics()
    expect(text).toContain('phaselock_lease_lost_total{lifecycle="thing",how="refused"} 1')
  })

  test('while the claim index is rebuilt the counts go on', async () => {
    const { replica, counted, things } = replicaWithMetrics()
    await replica.prepare()
    const hourAgo = new Date(Date.now() - 3_600_000)
    await things.insertMany([
      { _id: 'parked', phase: 'Creating', lockedAt: PARKED_AT },
      { _id: 'old', phase: 'Creating', lockedAt: TASK_LOCK_INIT_TIME, updatedAt: hourAgo },
    ])
    await amidRebuild(things)
    const text = await counted()
    expect(text).toContain('phaselock_documents_due{lifecycle="thing",phase="Creating"} 1')
    expect(text).toContain('phaselock_documents_parked{lifecycle="thing",phase="Creating"} 1')
    expect(text).toMatch(/phaselock_oldest_due_seconds\{lifecycle="thing",phase="Creating"\} 36\d\d/)
  })

  test('a scrape works without a database: what needs it is left out', async () => {
    const { client } = database
    const { replica, metrics } = replicaWithMetrics()
    await replica.runOnce()
    await client.close()
    // A closed driver connects by itself again: a namespace that can't be read stands for a database that is away.
    const broken = replicaMetrics({ db: client.db('x'.repeat(70)), lifecycles: [{ model: thing.model }] })
    const text = await broken.registry.metrics()
    expect(text).toContain('phaselock_database_up 0')
    expect(text).not.toContain('phaselock_documents_due{')
    expect(text).toContain('process_cpu_seconds_total')
    expect(await metrics.registry.metrics()).toContain('phaselock_handlers_running 0')
    await client.close()
  })

  test('a scrape ends in time for Prometheus, however long the client waits for its server', async () => {
    const patient = { serverSelectionTimeoutMS: 300_000, socketTimeoutMS: 300_000 }
    const client = new MongoClient('mongodb://127.0.0.1:1/?directConnection=true', patient)
    const lifecycles = [{ model: thing.model }, ...new Schedules().lifecycles]
    const away = replicaMetrics({ db: client.db('away'), lifecycles, processMetrics: false })
    const text = await away.registry.metrics()
    expect(text).toContain('phaselock_database_up 0')
    expect(text).not.toContain('phaselock_schedules{')
    await client.close()
  }, 60_000)
})
