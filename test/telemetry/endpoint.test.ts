import 'reflect-metadata'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { Injectable, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ScheduleModule } from '@nestjs/schedule'
import { runReplica } from '../../src/cli/start/run-replica.js'

import { readSettings } from '../../src/config/index.js'
import { connectDatabase } from '../../src/database/index.js'
import { Replica, silentLogger } from '../../src/index.js'
import { LockExecutor, memoryLocks } from '../../src/locks/index.js'
import { loadTelemetryHttp, PhaselockModule, SchedulerLock } from '../../src/nest/index.js'
import { Scheduled, SchedulesModule } from '../../src/nest/schedules/index.js'
import { pauseWork } from '../../src/operations/index.js'
import { Schedules } from '../../src/schedules/index.js'
import { replicaMetrics } from '../../src/telemetry/index.js'
import { dueSince } from '../schedules/support.js'
import { eventually, useDatabase } from '../support/database.js'

jest.setTimeout(120_000)
/** A busy machine. */
const PATIENTLY = { timeoutMs: 60_000 }

describe('/metrics, with named locks and schedules', () => {
  const database = useDatabase()
  const closing: (() => Promise<unknown>)[] = []
  afterEach(async () => {
    for (const close of closing.splice(0)) await close()
  })

  const textAt = async (http: string) => await (await fetch(`${http}/metrics`)).text()

  test('/readyz of phaselock start tells what is paused, and is ready all the same', async () => {
    const connection = await connectDatabase({ uri: database.uri })
    const settings = readSettings({}, { http: '0', httpHost: '127.0.0.1', doorbell: 'off' })
    const schedules = new Schedules({ tasks: { work: async () => undefined } })
    const lifecycles = schedules.lifecycles
    const running = await runReplica({ connection, lifecycles }, settings, silentLogger)
    closing.push(() => running.stop())
    const models = lifecycles.map(({ model }) => model)
    await pauseWork({ db: connection.db, models }, { lifecycle: 'schedules', by: 'ana', reason: 'a move' })
    await eventually(async () => {
      const answer = await fetch(`${running.http}/readyz`)
      expect(answer.status).toBe(200)
      const { details } = (await answer.json()) as { details: object }
      expect(details).toEqual({ replica: { status: 'up', paused: ['schedules: paused by ana: a move'] } })
    }, PATIENTLY)
  })

  test('of phaselock start: whatever the lifecycles of its module do', async () => {
    const executor = new LockExecutor(memoryLocks())
    const work = async () => await executor.executeWithLock(() => 1, { name: 'mine', lockAtMostFor: '1h' })
    const schedules = new Schedules({ tasks: { work } })
    const connection = await connectDatabase({ uri: database.uri })
    const settings = readSettings({}, { http: '0', httpHost: '127.0.0.1', doorbell: 'off' })
    const running = await runReplica({ connection, lifecycles: schedules.lifecycles }, settings, silentLogger)
    closing.push(() => running.stop())
    await schedules.upsert('s', { task: 'work', cron: '0 0 1 1 *' })
    await schedules.run('s')
    await eventually(async () => {
      const text = await textAt(running.http!)
      expect(text).toContain(
        'phaselock_schedule_runs_total{lifecycle="schedules",task="work",outcome="Completed",why="done"} 1',
      )
      expect(text).toContain('phaselock_schedules{lifecycle="schedules",phase="Active"} 1')
      expect(text).toContain('phaselock_lock_acquisitions_total{lock="",result="acquired"} 1')
    }, PATIENTLY)
    await closing.pop()!()
    await work()
    expect(await running.metrics!.registry.getSingleMetricAsString('phaselock_lock_acquisitions_total')).toContain(
      'result="acquired"} 1',
    )
  })

  test('of a Nest app', async () => {
    @Injectable()
    class Sync {
      @Scheduled({ id: 'sync', cron: '0 0 1 1 *' })
      async sync() {
        await this.locked()
      }

      @SchedulerLock({ name: 'nightly', lockAtMostFor: '1h' })
      async locked() {}
    }
    const { db } = database
    const metrics = replicaMetrics({ db, lifecycles: [], lockNames: ['nightly'], processMetrics: false })
    const { TelemetryHttpModule } = await loadTelemetryHttp()
    @Module({
      imports: [
        ScheduleModule.forRoot(),
        PhaselockModule.forRoot({
          db,
          observer: metrics.observer,
          locks: { observer: metrics.locks },
          doorbell: 'off',
        }),
        SchedulesModule.forRoot(),
        TelemetryHttpModule.forRoot({ registry: metrics.registry, notReady: () => [] }),
      ],
      providers: [Sync],
    })
    class AppModule {}
    const app = await NestFactory.create(AppModule, { logger: false, abortOnError: false })
    closing.push(() => app.close())
    metrics.watch(app.get(Replica))
    metrics.watchSchedules(app.get(Schedules))
    await app.listen(0, '127.0.0.1')
    const http = `http://127.0.0.1:${(app.getHttpServer().address() as AddressInfo).port}`
    await eventually(async () => (await app.get(Schedules).get('sync'))?.nextRunAt != null, PATIENTLY)
    await dueSince(db, 'sync', 1_000)
    await eventually(async () => {
      const text = await textAt(http)
      for (const line of [
        'phaselock_schedule_runs_total{lifecycle="schedules",task="Sync.sync",outcome="Completed",why="done"} 1',
        'phaselock_schedule_lateness_seconds_count{lifecycle="schedules",task="Sync.sync"} 1',
        'phaselock_schedules{lifecycle="schedules",phase="Active"} 1',
        'phaselock_lock_acquisitions_total{lock="nightly",result="acquired"} 1',
        'phaselock_lock_hold_seconds_count{lock="nightly"} 1',
        'phaselock_documents_due{lifecycle="schedules.runs",phase="Queued"} 0',
      ]) {
        expect(text).toContain(line)
      }
    }, PATIENTLY)
  })
})
