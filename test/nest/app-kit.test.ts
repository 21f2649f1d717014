import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { Controller, Get, Inject, Injectable, Module, Param } from '@nestjs/common'
import { ScheduleModule, SchedulerRegistry } from '@nestjs/schedule'
import { Test } from '@nestjs/testing'
import { lifecycleOf, Replica } from '../../src/index.js'
import { ModuleNotConfigured, PhaselockModule, TICK_JOB } from '../../src/nest/index.js'
import { AppKit, lifecycleInApp } from '../../src/nest/testing/index.js'
import { race, UnexpectedDocument } from '../../src/testing/index.js'
import { testServerUri } from '../support/database.js'
import { Accounts, Domains, keepingLogger, MailboxModule } from './sample.js'

const uri = testServerUri()
const logger = keepingLogger()
const transitions: string[] = []
const silent = { log() {}, warn() {}, error() {} }

/** The app as it runs in production: with a database that tests must not reach, and a scheduler. */
@Module({
  imports: [
    ScheduleModule.forRoot(),
    MailboxModule,
    PhaselockModule.forRoot({
      uri: 'mongodb://production:27017/app',
      logger,
      onTransition: ({ id, from, to }) => transitions.push(`${id} ${from} ${to}`),
    }),
  ],
})
class AppModule {}

const underTest = () => Test.createTestingModule({ imports: [AppModule] })

let kit: AppKit | undefined
afterEach(async () => {
  await kit?.close()
  kit = undefined
})

describe("the kit for a Nest app's tests", () => {
  test('handlers are methods of the app, with what the test overrides; the app owns documents of the same database', async () => {
    transitions.length = 0
    kit = await AppKit.start(underTest().overrideProvider(Domains).useValue({ name: 'test' }), { uri })
    const { mailboxes } = kit.app.get(Accounts)
    await mailboxes.insert({ _id: 'ann' })
    await kit.expectPhase('mail-box', 'ann', 'Creating')
    await kit.untilIdle()
    expect(await kit.expectPhase('mail-box', 'ann', 'Created')).toMatchObject({ address: 'ann@test' })
    expect(transitions).toEqual(['ann Creating Created'])

    await mailboxes.setState('ann', 'Deleted')
    await kit.untilIdle()
    expect(await mailboxes.find('ann')).toBeNull()
    await expect(kit.expectPhase('mail-box', 'ann', 'Created')).rejects.toThrow(UnexpectedDocument)
  })

  test('the app works on nothing by itself: its replica was not started, and its tick does not exist', async () => {
    kit = await AppKit.start(underTest(), { uri })
    expect(kit.app.get(Replica).status().notReady).not.toEqual([])
    expect(() => kit?.app.get(SchedulerRegistry, { strict: false }).getCronJob(TICK_JOB)).toThrow()
    expect(logger.lines.filter(({ level }) => level === 'error')).toEqual([])
  })

  test('an app that answers HTTP is made of the compiled module, and initialised once', async () => {
    let initialised = 0

    @Controller('mailboxes')
    class MailboxController {
      constructor(@Inject(Accounts) private readonly accounts: Accounts) {}

      onModuleInit() {
        initialised += 1
      }

      @Get(':id')
      async phaseOf(@Param('id') id: string): Promise<string> {
        return String((await this.accounts.mailboxes.find(id))?.phase)
      }
    }

    const withHttp = Test.createTestingModule({
      imports: [MailboxModule, PhaselockModule.forRoot()],
      controllers: [MailboxController],
    })
    const http = await AppKit.start(withHttp, {
      uri,
      app: (compiled) => compiled.createNestApplication({ logger: false }),
    })
    kit = http
    await http.insert('mail-box', { _id: 'ann', phase: 'Creating' })
    await http.app.listen(0, '127.0.0.1')
    const phase = async () => (await fetch(`${await http.app.getUrl()}/mailboxes/ann`)).text()
    expect(await phase()).toBe('Creating')
    await http.untilIdle()
    expect(await phase()).toBe('Created')
    expect(initialised).toBe(1)
  })

  test('a crash repeats the step; the app goes on owning documents while no replica is alive', async () => {
    kit = await AppKit.start(underTest(), { uri })
    const { mailboxes } = kit.app.get(Accounts)
    await mailboxes.insert({ _id: 'ann' })
    const crashed = kit.crash('address')
    await kit.untilIdle()
    await crashed
    await kit.expectHistory('mail-box', 'ann', [{ outcome: 'again' }])
    await mailboxes.insert({ _id: 'bea' })
    await kit.advance('31s')
    await kit.untilIdle()
    await kit.expectPhase('mail-box', 'ann', 'Created')
    await kit.expectPhase('mail-box', 'bea', 'Created')
  })

  test('two kits of one app at once have databases of their own', async () => {
    kit = await AppKit.start(underTest(), { uri })
    const other = await AppKit.start(underTest(), { uri })
    await kit.app.get(Accounts).mailboxes.insert({ _id: 'ann' })
    expect(await other.app.get(Accounts).mailboxes.find('ann')).toBeNull()
    await other.close()
  })
})

const parcel = lifecycleOf<{ _id: string }>().define({
  name: 'parcel',
  collection: 'Parcel',
  phases: { Packing: { next: ['Sent'] }, Sent: { rest: true } },
})

@Injectable()
class Carrier {
  async send(_id: string): Promise<void> {
    throw new Error('the real carrier')
  }
}

@Injectable()
class ParcelHandlers {
  constructor(@Inject(Carrier) private readonly carrier: Carrier) {}

  @parcel.OnPhase('Packing')
  async packing(doc: typeof parcel.$doc, step: typeof parcel.$step.Packing) {
    await this.carrier.send(doc._id)
    return step.moveTo('Sent')
  }
}

describe('a race between two replicas of a Nest app', () => {
  test('each is an app of its own, with the outside world of its run; what happens twice is found', async () => {
    let closed = 0
    @Injectable()
    class Closing {
      onApplicationShutdown() {
        closed += 1
      }
    }
    const appWith = (carrier: object) =>
      Test.createTestingModule({
        imports: [PhaselockModule.forRoot({ logger }), PhaselockModule.forFeature([parcel])],
        providers: [Carrier, ParcelHandlers, Closing],
      })
        .overrideProvider(Carrier)
        .useValue(carrier)
    const report = await race({
      uri,
      outside: () => ({ send: async (_id: string) => {} }),
      lifecycle: (carrier, db) => lifecycleInApp(appWith(carrier), parcel, db),
      document: { _id: 'p1', phase: 'Packing' },
    })
    expect(report).toMatchObject({ runs: 5, unfinished: [] })
    expect(report.twice.map(({ fault, at, effect }) => `${fault} ${at}: ${effect}`)).toEqual([
      'crash after send (call 1): send("p1")',
      'pause before send (call 1): send("p1")',
      'pause after send (call 1): send("p1")',
    ])
    expect(closed).toBe(2 * report.runs)
  })
})

describe('mistakes', () => {
  const start = (metadata: object) => AppKit.start(Test.createTestingModule(metadata).setLogger(silent), { uri })
  const forRoot = () => PhaselockModule.forRoot({ logger })

  test('an app without PhaselockModule', async () => {
    await expect(start({})).rejects.toThrow(
      "expected PhaselockModule.forRoot() or forRootAsync() in this app, but it is missing; add it to the imports of your root module (the test's kit needs it)",
    )
    await expect(start({ imports: [MailboxModule] })).rejects.toThrow(ModuleNotConfigured)
  })

  test('nothing registered', async () => {
    await expect(start({ imports: [forRoot()] })).rejects.toThrow(
      'expected lifecycles in this app, got none; add PhaselockModule.forFeature([...])',
    )
  })

  test('a lifecycle without handlers', async () => {
    await expect(start({ imports: [forRoot(), PhaselockModule.forFeature([parcel])] })).rejects.toThrow(
      "lifecycle 'parcel': working phase 'Packing' has no handler; add a method with @parcel.OnPhase('Packing')",
    )
  })

  test('an app that was compiled already', async () => {
    const compiled = await Test.createTestingModule({ imports: [] }).compile()
    await expect(AppKit.start(compiled as never, { uri })).rejects.toThrow(
      'AppKit.start: app: expected what Test.createTestingModule({ ... }) returns, got something else; leave out compile()',
    )
  })

  test('an option that it has not', async () => {
    const started = AppKit.start(underTest(), { url: uri } as never)
    await expect(started).rejects.toThrow("AppKit.start: unknown option 'url'")
  })

  test('a lifecycle that the app of a race has not', async () => {
    const raced = race({
      uri,
      outside: () => ({}),
      lifecycle: (_outside, db) => lifecycleInApp(underTest(), parcel, db),
      document: { _id: 'p1' },
    })
    await expect(raced).rejects.toThrow("expected one of the app's lifecycles (mail-box), got 'parcel'")
  })

  test('an app that fails to start is closed, and its error is the one that is told', async () => {
    const shutdown = jest.fn()
    @Injectable()
    class Broken {
      onModuleInit() {
        throw new Error('no licence')
      }
      onApplicationShutdown = shutdown
    }
    await expect(start({ imports: [AppModule], providers: [Broken] })).rejects.toThrow('no licence')
    expect(shutdown).toHaveBeenCalledTimes(1)
  })
})
