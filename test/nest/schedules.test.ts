import { afterEach, describe, expect, test } from '@jest/globals'
import { type INestApplicationContext, Injectable, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ScheduleModule } from '@nestjs/schedule'
import { PhaselockModule } from '../../src/nest/index.js'
import { Scheduled, ScheduledTask, SchedulesModule } from '../../src/nest/schedules/index.js'
import { type Json, Schedules, type TaskRun } from '../../src/schedules/index.js'
import { keepingLogger } from '../nest/sample.js'
import { dueSince } from '../schedules/support.js'
import { eventually, useDatabase } from '../support/database.js'

/** A busy machine. */
const PATIENTLY = { timeoutMs: 60_000 }

@Injectable()
class Clients {
  readonly name = 'gitlab'
}

@Injectable()
class Sync {
  readonly ran: unknown[] = []
  constructor(readonly clients: Clients) {}

  @Scheduled({ id: 'repo_sync', cron: '0 */6 * * *', timezone: 'Asia/Seoul', args: { repository: 42 } })
  async sync(args: Json, run: TaskRun) {
    this.ran.push([this.clients.name, args, run.schedule])
  }

  @ScheduledTask('tidy-up')
  tidyUp(args: Json) {
    this.ran.push(args)
  }
}

describe('schedules in a Nest app', () => {
  const database = useDatabase()
  let app: INestApplicationContext | undefined
  afterEach(async () => {
    await app?.close()
    app = undefined
  })

  async function boot(...providers: (new (...args: never[]) => unknown)[]) {
    const logger = keepingLogger()
    @Module({
      imports: [
        ScheduleModule.forRoot(),
        PhaselockModule.forRoot({ uri: database.uri, logger }),
        SchedulesModule.forRoot(),
      ],
      providers: [Clients, ...providers],
    })
    class AppModule {}
    app = await NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false })
    return app
  }

  test('a decorated method is a task with its schedule; others run by schedules of the database', async () => {
    const context = await boot(Sync)
    const schedules = context.get(Schedules)
    expect(schedules.taskNames).toEqual(['Sync.sync', 'tidy-up'])
    const stored = await eventually(async () => {
      const found = await schedules.get('repo_sync')
      return found?.nextRunAt ? found : false
    }, PATIENTLY)
    expect(stored).toMatchObject({ task: 'Sync.sync', edits: [{ action: 'created', by: 'code' }] })
    await schedules.upsert('tidy', { task: 'tidy-up', interval: '3600s', args: ['tmp'] })
    await eventually(async () => (await schedules.get('tidy'))?.nextRunAt != null, PATIENTLY)
    await dueSince(database.db, 'repo_sync', 1_000)
    await dueSince(database.db, 'tidy', 1_000)
    const { ran } = context.get(Sync)
    await eventually(() => expect(ran).toHaveLength(2), PATIENTLY)
    expect(ran).toEqual(expect.arrayContaining([['gitlab', { repository: 42 }, 'repo_sync'], ['tmp']]))
    await eventually(
      async () => expect(await schedules.runs('tidy')).toMatchObject([{ phase: 'Completed' }]),
      PATIENTLY,
    )
  })

  test('what is missing or wrong is said at the start', async () => {
    @Module({ imports: [SchedulesModule.forRoot()], providers: [Clients, Sync] })
    class Alone {}
    const alone = NestFactory.createApplicationContext(Alone, { logger: false, abortOnError: false })
    await expect(alone).rejects.toThrow('expected PhaselockModule.forRoot() or forRootAsync() in this app')
    expect(() => Scheduled('* * * * *' as never)).toThrow("got * * * * *; write @Scheduled({ cron: '* * * * *' })")
    @Injectable()
    class Wrong {
      @Scheduled({ cron: '99 * * * *' })
      often() {}
    }
    await expect(boot(Wrong)).rejects.toThrow(
      `schedule 'Wrong.often' can't run: cron: "99 * * * *": minute: expected 0-59`,
    )
  })

  test('a second SchedulesModule is refused at the start', async () => {
    @Module({
      imports: [
        ScheduleModule.forRoot(),
        PhaselockModule.forRoot({ uri: database.uri, logger: keepingLogger() }),
        SchedulesModule.forRoot(),
        SchedulesModule.forRoot({ by: 'another' }),
      ],
    })
    class TwoOfThem {}
    const starting = NestFactory.createApplicationContext(TwoOfThem, { logger: false, abortOnError: false })
    await expect(starting).rejects.toThrow('expected SchedulesModule.forRoot() once in this app, got it 2 times')
  })

  test('two methods with one schedule are refused at the start', async () => {
    @Injectable()
    class Twice {
      @Scheduled({ id: 'repo_sync', interval: '60s' })
      other() {}
    }
    await expect(boot(Sync, Twice)).rejects.toThrow("two methods declare the schedule 'repo_sync'")
  })
})
