import { afterEach, expect, jest, test } from '@jest/globals'
import { type INestApplicationContext, Injectable, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { Cron, CronExpression, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule'
import { Replica } from '../../src/index.js'
import { NoScheduler, PhaselockModule, TICK_JOB } from '../../src/nest/index.js'
import { PhaselockRunner } from '../../src/nest/runner.js'
import { eventually, useDatabase } from '../support/database.js'
import { Accounts, keepingLogger, MailboxModule } from './sample.js'

const database = useDatabase()
let app: INestApplicationContext | undefined

afterEach(async () => {
  await app?.close()
  app = undefined
})

/** A cron of the user's own that counts its runs. */
@Injectable()
class Report {
  runs = 0
  @Cron(CronExpression.EVERY_SECOND, { name: 'report' })
  run() {
    this.runs += 1
  }
}

async function boot(imports: object[], tick?: boolean, tickEvery?: '10s') {
  const ticks: number[] = []
  const root = PhaselockModule.forRoot({
    db: database.db,
    ...{ tick, tickEvery },
    // No rings, which cause ticks of their own.
    ...(tickEvery && { doorbell: 'off' as const }),
    logger: keepingLogger(),
    observer: { ticked: () => void ticks.push(Date.now()) },
  })
  @Module({ imports: [...(imports as never[]), root, MailboxModule], providers: [Report] })
  class AppModule {}
  app = await NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false })
  return { context: app, ticks }
}

test("the app's own crons run exactly once each time beside the tick, which is one cron job of the same scheduler", async () => {
  const { context, ticks } = await boot([ScheduleModule.forRoot()])
  const report = context.get(Report)
  // Its job is the only one that runs it, however late a busy machine lets its timer fire.
  let fired = 0
  const ranBefore = report.runs
  context
    .get(SchedulerRegistry)
    .getCronJob('report')
    .addCallback(() => {
      fired += 1
    })
  await eventually(() => fired >= 3 && ticks.length >= 2)
  expect(report.runs - ranBefore).toBe(fired)
  expect([...context.get(SchedulerRegistry).getCronJobs().keys()].sort()).toEqual([TICK_JOB, 'report'])
})

test('tickEvery: the seconds in between are left out', async () => {
  const startedMs = Date.now()
  const { context } = await boot([ScheduleModule.forRoot()], undefined, '10s')
  const tick = jest.spyOn(context.get(Replica), 'tick')
  const runner = context.get(PhaselockRunner)
  await Promise.all([runner.tick(), runner.tick(), runner.tick()])
  // Half a second is for a cron that comes early.
  expect(tick.mock.calls.length).toBeLessThanOrEqual(1 + (Date.now() - startedMs) / 9_500)
})

test('without ScheduleModule the app does not start, and the error has the line to add', async () => {
  const failed = await boot([]).catch((error) => error)
  expect(failed).toBeInstanceOf(NoScheduler)
  expect(failed.message).toContain('add `ScheduleModule.forRoot()` (from @nestjs/schedule) to the imports')
  expect(failed.message).toContain('tick: false')
})

test('nor with a ScheduleModule that runs no crons', async () => {
  const failed = await boot([ScheduleModule.forRoot({ cronJobs: false })]).catch((error) => error)
  expect(failed).toBeInstanceOf(NoScheduler)
  expect(failed.message).toContain('`cronJobs: false`')
})

test('tick: false needs no ScheduleModule: it inserts and owns, and works on nothing unless it is asked to', async () => {
  const { context, ticks } = await boot([], false)
  const { mailboxes } = context.get(Accounts)
  await mailboxes.insert({ _id: 'ann' })
  expect(await database.db.listCollections({ name: 'phaselock.lifecycles' }).toArray()).toEqual([])
  expect(context.get(Replica).status().notReady).toEqual(['not started'])
  await context.get(Replica).runOnce()
  expect(await mailboxes.owner().find('ann')).toMatchObject({ phase: 'Created' })
  expect(ticks).toEqual([])
})

test('tick: false beside a ScheduleModule leaves the documents alone too', async () => {
  const { context, ticks } = await boot([ScheduleModule.forRoot()], false)
  await context.get(Accounts).mailboxes.insert({ _id: 'ann' })
  const report = context.get(Report)
  await eventually(() => report.runs >= 2)
  expect(ticks).toEqual([])
  expect(await database.db.collection('Mailbox').findOne()).toMatchObject({ _id: 'ann', phase: 'Creating' })
})
