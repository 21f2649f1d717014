/**
 * The invariant: what a module is given when its file is imported is the app's own once it starts. One AppModule starts several times in a
 * process (hot reload, `beforeEach` of tests, two apps), one after the other and at once, each time on connections of its own.
 */
import { afterEach, describe, expect, test } from '@jest/globals'
import { type INestApplicationContext, Inject, Injectable, Module, Scope } from '@nestjs/common'
import { ContextIdFactory, NestFactory } from '@nestjs/core'
import { ScheduleModule } from '@nestjs/schedule'
import { lifecycleOf } from '../../src/index.js'
import { LockExecutor } from '../../src/locks/index.js'
import { type BoundLifecycleOf, InjectLifecycle, PhaselockModule } from '../../src/nest/index.js'
import { LocksModule, SchedulerLock } from '../../src/nest/locks/index.js'
import { Scheduled, SchedulesModule } from '../../src/nest/schedules/index.js'
import { Schedules, starts } from '../../src/schedules/index.js'
import { dueSince } from '../schedules/support.js'
import { eventually, testServerUri, useDatabase, withDatabase } from '../support/database.js'
import { keepingLogger, MailboxHandlers, MailboxModule } from './sample.js'

/** A busy machine. */
const PATIENTLY = { timeoutMs: 60_000 }

const parcel = lifecycleOf<{ _id: string }>().define({
  name: 'parcel',
  collection: 'Parcel',
  phases: { Packing: { next: ['Sent'] }, Sent: { rest: true } },
})
/** With handlers: one object for all apps of this process. */
const parcels = parcel.handle({ Packing: async (_doc, step) => step.moveTo('Sent') })

@Injectable()
class Office {
  readonly ran: string[] = []
  constructor(@InjectLifecycle(parcel) readonly parcels: BoundLifecycleOf<typeof parcel>) {}

  @Scheduled({ id: 'sweep', interval: '3600s' })
  async sweep() {
    this.ran.push('sweep')
  }

  @SchedulerLock({ name: 'alone', lockAtMostFor: '1m' })
  async alone(): Promise<string | undefined> {
    return 'alone'
  }
}

/** Made for each request: while two apps are open, the locks of the last one count for it. */
@Injectable({ scope: Scope.REQUEST })
class Desk {
  @SchedulerLock({ name: 'desk', lockAtMostFor: '1m' })
  async alone(): Promise<string | undefined> {
    return 'desk'
  }
}

/** Read when an app starts, where its modules were made long before. */
let uri = ''

@Module({
  imports: [
    ScheduleModule.forRoot(),
    PhaselockModule.forRootAsync({ useFactory: () => ({ uri, logger: keepingLogger() }) }),
    SchedulesModule.forRoot({ tasks: { packs: starts(parcels, () => ({})) } }),
    PhaselockModule.forFeature([parcels]),
    MailboxModule,
  ],
  providers: [Office, Desk],
})
class AppModule {}

@Injectable()
class Alone {
  constructor(@Inject(LockExecutor) readonly locks: LockExecutor) {}

  @SchedulerLock({ name: 'alone', lockAtMostFor: '1m' })
  async alone(): Promise<string | undefined> {
    return 'alone'
  }
}

@Module({
  imports: [LocksModule.forRootAsync({ useFactory: () => ({ provider: 'mongodb' as const, url: uri }) })],
  providers: [Alone, Desk],
})
class LocksApp {}

describe('one AppModule', () => {
  const first = useDatabase()
  const second = useDatabase()
  const running = new Set<INestApplicationContext>()
  afterEach(async () => {
    for (const app of running) await app.close()
    running.clear()
  })

  async function boot(where: string, module: new () => unknown = AppModule): Promise<INestApplicationContext> {
    uri = where
    const app = await NestFactory.createApplicationContext(module, { logger: false, abortOnError: false })
    running.add(app)
    return app
  }
  async function close(app: INestApplicationContext): Promise<void> {
    running.delete(app)
    await app.close()
  }

  /** Each part of the app works, on its own database. */
  async function works(app: INestApplicationContext, { db }: { db: typeof first.db }, name: string): Promise<void> {
    const office = app.get(Office)
    const schedules = app.get(Schedules)
    expect(schedules.taskNames).toEqual(['packs', 'Office.sweep'])
    await eventually(async () => (await schedules.get('sweep'))?.nextRunAt != null, PATIENTLY)
    await dueSince(db, 'sweep', 1_000)
    const before = office.ran.length
    await eventually(() => expect(office.ran.length).toBeGreaterThan(before), PATIENTLY)
    await office.parcels.insert({ _id: name })
    await app.get(MailboxHandlers).mailboxes.insert({ _id: name })
    for (const [collection, phase] of [
      ['Parcel', 'Sent'],
      ['Mailbox', 'Created'],
    ] as const)
      await eventually(
        async () =>
          expect(await db.collection<{ _id: string }>(collection).findOne({ _id: name })).toMatchObject({ phase }),
        PATIENTLY,
      )
    await schedules.upsert('packing', { task: 'packs', interval: '3600s' })
    const run = await schedules.run('packing')
    await eventually(async () => expect(await schedules.findRun(run)).toMatchObject({ phase: 'Completed' }), PATIENTLY)
    expect(await db.collection<{ _id: string }>('Parcel').findOne({ _id: run })).toMatchObject({ phase: 'Sent' })
    expect(await office.alone()).toBe('alone')
    expect(await desk(app)).toBe('desk')
    expect(await db.collection<{ _id: string }>('shedLock').distinct('_id')).toContain('alone')
  }
  const desk = async (app: INestApplicationContext) => (await app.resolve(Desk, ContextIdFactory.create())).alone()

  test('starts three times in a row, each on connections of its own', async () => {
    for (const name of ['a', 'b', 'c']) {
      const app = await boot(first.uri)
      await works(app, first, name)
      await close(app)
    }
  })

  test('is two apps at once, each with its own database, and one goes on when the other closes', async () => {
    const one = await boot(first.uri)
    const other = await boot(second.uri)
    await works(one, first, 'one')
    await works(other, second, 'other')
    await close(other)
    await works(one, first, 'still')
    expect(await second.db.collection('Parcel').countDocuments()).toBe(2)
    expect(await first.db.collection<{ _id: string }>('shedLock').distinct('_id')).toContain('desk')
  })

  test('with locks alone starts three times in a row, and twice at once', async () => {
    for (let i = 0; i < 3; i++) {
      const app = await boot(first.uri, LocksApp)
      expect([await app.get(Alone).alone(), await desk(app)]).toEqual(['alone', 'desk'])
      await close(app)
    }
    const one = await boot(first.uri, LocksApp)
    const other = await boot(withDatabase(testServerUri(), second.db.databaseName), LocksApp)
    expect([await one.get(Alone).alone(), await other.get(Alone).alone()]).toEqual(['alone', 'alone'])
    await close(other)
    expect([await one.get(Alone).alone(), await desk(one)]).toEqual(['alone', 'desk'])
  })
})
