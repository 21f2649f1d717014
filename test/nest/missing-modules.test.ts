import 'reflect-metadata'
import { afterEach, describe, expect, test } from '@jest/globals'
import { Injectable, type LoggerService, Module, type ModuleMetadata, Scope } from '@nestjs/common'
import { LazyModuleLoader, NestFactory } from '@nestjs/core'
import { ScheduleModule } from '@nestjs/schedule'
import { Test } from '@nestjs/testing'
import { memoryLocks } from '../../src/locks/index.js'
import { LocksModule, PhaselockModule, SchedulerLock } from '../../src/nest/index.js'
import { Scheduled, ScheduledTask, SchedulesModule } from '../../src/nest/schedules/index.js'
import { useDatabase } from '../support/database.js'
import { keepingLogger, mailbox } from './sample.js'

/** New classes for each test: each class is warned of once in a process. */
function classes() {
  const booted: string[] = []
  @Injectable()
  class Sync {
    @Scheduled({ id: 'repo_sync', interval: '60s' })
    sync() {}

    @ScheduledTask('tidy-up')
    tidyUp() {}

    onApplicationBootstrap() {
      booted.push('Sync')
    }
  }
  @Injectable()
  class Handlers {
    @mailbox.OnPhase('Creating')
    async creating(_doc: typeof mailbox.$doc, step: typeof mailbox.$step.Creating) {
      return step.moveTo('Created')
    }

    @mailbox.OnPhase('Deleting')
    async deleting(_doc: typeof mailbox.$doc, step: typeof mailbox.$step.Deleting) {
      return step.moveTo('Deleted')
    }
  }
  class Base {
    onApplicationBootstrap() {
      booted.push('Base')
    }
  }
  @Injectable()
  class Reports extends Base {
    @SchedulerLock({ name: 'nightly', lockAtMostFor: '1m' })
    async nightly() {}
  }
  return { Sync, Handlers, Reports, booted }
}

const SYNC =
  'Sync.sync, Sync.tidyUp: nothing in this app looks for @Scheduled and @ScheduledTask, so it never runs; import SchedulesModule.forRoot() (phaselock/schedules/nest) in its root module'
const HANDLERS =
  'Handlers.creating, Handlers.deleting: nothing in this app looks for @lifecycle.OnPhase, so it handles no document; import PhaselockModule.forRoot() (phaselock/nest) in its root module'
const REPORTS =
  'Reports.nightly: nothing in this app looks for @SchedulerLock, so it fails when it is called; import LocksModule.forRoot() (phaselock/locks/nest) or PhaselockModule.forRoot() (phaselock/nest) in its root module'

const database = useDatabase()
const closing: { close(): Promise<void> }[] = []
afterEach(async () => {
  for (const app of closing.splice(0)) await app.close()
})

/** Starts an app, and resolves to it with what it was warned of. */
async function start(metadata: ModuleMetadata) {
  const warnings: string[] = []
  const ignore = () => {}
  const logger: LoggerService = { log: ignore, error: ignore, warn: (message) => void warnings.push(String(message)) }
  @Module(metadata)
  class AppModule {}
  const app = await NestFactory.createApplicationContext(AppModule, { logger, abortOnError: false })
  closing.push(app)
  return { app, warnings }
}

const locks = () => LocksModule.forRoot({ provider: memoryLocks() })
const phaselock = (tick: boolean) =>
  PhaselockModule.forRoot({ db: database.db, tick, doorbell: 'off', logger: keepingLogger() })

describe('decorated methods in an app without the module that looks for them', () => {
  test('are warned of, once for each class; their own hooks run', async () => {
    const { Sync, Handlers, Reports, booted } = classes()
    const providers = [Sync, Handlers, Reports, { provide: 'alias', useExisting: Sync }]
    const { warnings } = await start({ providers })
    expect(warnings.sort()).toEqual([HANDLERS, REPORTS, SYNC])
    expect(booted.sort()).toEqual(['Base', 'Sync'])
    expect((await start({ providers })).warnings).toEqual([])
    expect(Object.keys(Reports.prototype)).toEqual([])
  })

  test('two apps in one process are told apart, and one with all it needs is told nothing', async () => {
    const { Sync, Handlers, Reports, booted } = classes()
    const all = [ScheduleModule.forRoot(), phaselock(true), SchedulesModule.forRoot()]
    const whole = await start({
      imports: [...all, PhaselockModule.forFeature([mailbox])],
      providers: [Sync, Handlers, Reports],
    })
    expect(whole.warnings).toEqual([])
    expect(booted.sort()).toEqual(['Base', 'Sync'])
    const { warnings } = await start({ imports: [locks()], providers: [Sync, Handlers, Reports] })
    expect(warnings.sort()).toEqual([HANDLERS, SYNC])
  })

  test('an instance that is made for each use has the locks of its class', async () => {
    @Injectable({ scope: Scope.TRANSIENT })
    class Later {
      @SchedulerLock({ name: 'later', lockAtMostFor: '1m' })
      async run() {}
    }
    @Injectable()
    class User {
      constructor(readonly later: Later) {}
    }
    expect((await start({ imports: [locks()], providers: [Later, User] })).warnings).toEqual([])
  })

  test('are an error where PhaselockModule works, and left to other processes where it does not', async () => {
    const { Sync } = classes()
    const starting = start({ imports: [ScheduleModule.forRoot(), phaselock(true)], providers: [Sync] })
    await expect(starting).rejects.toMatchObject({
      name: 'ModuleMissing',
      methods: ['Sync.sync', 'Sync.tidyUp'],
      message: expect.stringMatching(/^expected SchedulesModule.forRoot\(\) .* give PhaselockModule `tick: false` if/),
    })
    expect((await start({ imports: [phaselock(false)], providers: [Sync] })).warnings).toEqual([])
  })

  test('are no error in a test of a part of the app, and none in a module that is loaded lazily', async () => {
    const { Sync, Handlers, Reports } = classes()
    const part = await Test.createTestingModule({ providers: [Sync, Handlers, Reports] }).compile()
    closing.push(part)
    await part.init()

    const later = classes()
    @Module({ providers: [later.Sync, later.Reports] })
    class LazyModule {}
    const { app, warnings } = await start({ imports: [ScheduleModule.forRoot(), phaselock(true)] })
    const loaded = await app.get(LazyModuleLoader).load(() => LazyModule)
    expect(loaded.get(later.Sync)).toBeDefined()
    expect(warnings).toEqual([])
  })
})
