// biome-ignore-all lint/suspicious/noTemplateCurlyInString: placeholders of settings
import 'reflect-metadata'
import { afterEach, describe, expect, test } from '@jest/globals'
import { type DynamicModule, type INestApplicationContext, Inject, Injectable, Module, Scope } from '@nestjs/common'
import { ModuleRef, NestFactory } from '@nestjs/core'
import { Cron, CronExpression, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule'
import { memoryLocks, type OperableLockProvider } from '../../src/locks/index.js'
import { LockAssert, LockExecutor, LocksModule, PhaselockModule, SchedulerLock } from '../../src/nest/index.js'
import { eventually, useDatabase } from '../support/database.js'

const NEVER = CronExpression.EVERY_YEAR

/** Notes the metadata of a method, as decorators of other libraries do. */
const Audited = (value: string) => (_: object, __: string, descriptor: PropertyDescriptor) =>
  Reflect.defineMetadata('audited', value, descriptor.value)

@Injectable()
class Reports {
  ran: string[] = []

  @Cron(NEVER, { name: 'cron above' })
  @SchedulerLock({ name: 'above', lockAtMostFor: '1h' })
  async above() {
    LockAssert.assertLocked('above')
    this.ran.push('above')
  }

  @SchedulerLock({ name: 'below-${REGION}', lockAtMostFor: 'PT1H' })
  @Cron(NEVER, { name: 'cron below' })
  @Audited('yes')
  async below() {
    LockAssert.assertLocked('below-eu')
    this.ran.push('below')
  }

  @SchedulerLock({ name: 'counted' })
  async counted(from: number, ...more: number[]): Promise<number | undefined> {
    return [from, ...more].reduce((sum, n) => sum + n)
  }

  async byThis(): Promise<number | undefined> {
    return await this.counted(1, 2, 3)
  }

  @SchedulerLock({ name: 'failing' })
  async failing(): Promise<void> {
    throw new Error('out of paper')
  }
}

/** Something else that has it injected. */
@Injectable()
class Accounting {
  constructor(readonly reports: Reports) {}
}

const apps: INestApplicationContext[] = []
afterEach(async () => {
  for (const app of apps.splice(0)) await app.close()
})

async function boot(locks: DynamicModule, providers: DynamicModule['providers'] = [Reports, Accounting]) {
  @Module({ imports: [ScheduleModule.forRoot(), locks], providers: providers! })
  class AppModule {}
  const app = await NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false })
  apps.push(app)
  const { executor, provider } = { executor: app.get(LockExecutor), provider: app.get(LockExecutor).provider }
  return { app, executor, provider: provider as OperableLockProvider }
}

const inMemory = (more: object = {}) =>
  LocksModule.forRoot({
    provider: memoryLocks(),
    defaults: { lockAtMostFor: '10m' },
    settings: { REGION: 'eu' },
    ...more,
  })

describe('@SchedulerLock', () => {
  test('with @Cron in either order: one job each, under its lock, skipped while another has it', async () => {
    const happened: string[] = []
    const observer = {
      finished: ({ name }: { name: string }) => happened.push(`ran ${name}`),
      notAcquired: ({ name }: { name: string }) => happened.push(`skipped ${name}`),
    }
    const { app, provider } = await boot(inMemory({ observer }))
    const reports = app.get(Reports)
    const crons = app.get(SchedulerRegistry).getCronJobs()
    expect([...crons.keys()].sort()).toEqual(['cron above', 'cron below'])
    const fire = async () => {
      happened.length = 0
      // It doesn't wait for what it starts.
      for (const job of crons.values()) void job.fireOnTick()
      await eventually(() => happened.length === crons.size)
      return [...happened].sort()
    }
    expect(await fire()).toEqual(['ran above', 'ran below-eu'])
    expect(reports.ran.sort()).toEqual(['above', 'below'])
    await eventually(async () => (await provider.list({ heldOnly: true })).length === 0)
    await provider.lock({ name: 'above', lockAtMostFor: '1h' })
    expect(await fire()).toEqual(['ran below-eu', 'skipped above'])
    expect(reports.ran.sort()).toEqual(['above', 'below', 'below'])
    expect(Reflect.getMetadata('audited', Reports.prototype.below)).toBe('yes')
    expect([Reports.prototype.counted.name, Reports.prototype.counted.length]).toEqual(['counted', 1])
  })

  test('on every call path: direct, injected, this.method(); undefined when skipped', async () => {
    const { app, provider } = await boot(inMemory())
    const reports = app.get(Reports)
    const calls = [
      () => reports.counted(1, 2, 3),
      () => app.get(Accounting).reports.counted(1, 2, 3),
      () => reports.byThis(),
    ]
    for (const call of calls) expect(await call()).toBe(6)
    const held = (await provider.lock({ name: 'counted', lockAtMostFor: '1h' }))!
    for (const call of calls) expect(await call()).toBeUndefined()
    await held.unlock()
    await expect(reports.failing()).rejects.toThrow('out of paper')
    expect((await provider.find('failing'))?.held).toBe(false)
  })

  test('defaults come from forRoot', async () => {
    const { app, provider } = await boot(inMemory({ defaults: { lockAtMostFor: '10m', lockAtLeastFor: '5m' } }))
    await app.get(Reports).counted(1)
    const kept = (await provider.find('counted'))!
    expect(kept).toMatchObject({ held: true, released: true })
    expect(kept.lockUntil!.getTime() - kept.lockedAt!.getTime()).toBe(300_000)
  })

  test('two apps in one process have their own locks, also for the same class', async () => {
    const [one, two] = [await boot(inMemory()), await boot(inMemory())]
    await one.provider.lock({ name: 'counted', lockAtMostFor: '1h' })
    expect(await one.app.get(Reports).counted(1)).toBeUndefined()
    expect(await two.app.get(Reports).counted(1)).toBe(1)
  })

  test('an instance that Nest makes later has the locks of its class', async () => {
    @Injectable({ scope: Scope.TRANSIENT })
    class Later {
      @SchedulerLock({ name: 'later', lockAtMostFor: '1m' })
      async run(): Promise<string | undefined> {
        return 'ran'
      }
    }
    const { app, provider } = await boot(inMemory(), [Later])
    expect(await (await app.get(ModuleRef).create(Later)).run()).toBe('ran')
    await provider.lock({ name: 'later', lockAtMostFor: '1h' })
    expect(await (await app.resolve(Later)).run()).toBeUndefined()
  })

  test('a method that is called while the app starts has its lock already', async () => {
    @Injectable()
    class Early {
      result: unknown
      @SchedulerLock({ name: 'early', lockAtMostFor: '1m' })
      async run(): Promise<string | undefined> {
        return 'ran'
      }
      async onModuleInit() {
        this.result = await this.run()
      }
    }
    const { app } = await boot(inMemory(), [Early])
    expect(app.get(Early).result).toBe('ran')
  })

  test('what is wrong with any method is told when the app starts', async () => {
    class Wrong {
      @SchedulerLock({ name: '', lockAtMostFor: '1m' })
      async nameless() {}
      @SchedulerLock({ name: 'long', lockAtMostFor: '1m', lockAtLeastFor: '2m' })
      async longer() {}
      @SchedulerLock({ name: 'in-${CITY}', lockAtMostFor: '1m' })
      async where() {}
      @SchedulerLock({ name: 'a', lockAtMostFor: '${HOW_LONG:soon}' })
      async until() {}
      @SchedulerLock({ lockAtMostFor: '1m' } as never)
      async undeclared() {}
    }
    const error = await boot(inMemory(), [Wrong]).catch((failure) => failure)
    expect(error.name).toBe('InvalidSchedulerLocks')
    expect(error.problems).toEqual([
      'Wrong.nameless: name: expected a string, got an empty one; locks with the same name exclude each other',
      "Wrong.longer: lockAtLeastFor (120000 ms): expected at most lockAtMostFor (60000 ms); a lock can't be kept longer than it lasts",
      "Wrong.where: expected a setting 'CITY' for 'in-${CITY}', but there is none; set it, or write ${CITY:otherwise}",
      expect.stringMatching(/^Wrong\.until: lockAtMostFor: expected a duration such as .* got "soon"$/),
      'Wrong.undeclared: name: expected a string, got undefined; locks with the same name exclude each other',
    ])
    expect(() => SchedulerLock({ name: 'x' })(class {}.prototype, 'field', undefined as never)).toThrow(
      /expected a method under @SchedulerLock/,
    )
    await expect(boot(LocksModule.forRoot({ provider: 'zookeeper' as never }), [])).rejects.toThrow(
      /provider: expected one of auto, mongodb, postgres, mysql, redis, redis-quorum, memory for locks, got 'zookeeper'/,
    )
    await expect(boot(inMemory({ defaults: { atMost: 1 } }), [])).rejects.toThrow(
      /locks.defaults: unknown option 'atMost'/,
    )
  })

  test('without locks in the app the method is not run', async () => {
    class Alone {
      @SchedulerLock({ name: 'alone', lockAtMostFor: '1m' })
      async run() {}
    }
    await expect(new Alone().run()).rejects.toThrow(/expected locks in this app for Alone.run/)
  })
})

describe('in PhaselockModule', () => {
  const database = useDatabase()

  test("locks are in the module's own database, for every provider of the app", async () => {
    const root = PhaselockModule.forRoot({
      db: database.db,
      tick: false,
      name: 'pod-1',
      locks: { defaults: { lockAtMostFor: '10m' }, settings: { REGION: 'eu' } },
    })
    @Injectable()
    class Service {
      constructor(@Inject(LockExecutor) readonly locks: LockExecutor) {}
    }
    const { app } = await boot(root, [Reports, Accounting, Service])
    await app.get(Reports).counted(1)
    await app.get(Service).locks.executeWithLock(() => 1, { name: 'by hand', lockAtMostFor: '1m' })
    const stored = await database.db.collection('shedLock').find().sort({ _id: 1 }).toArray()
    expect(stored.map(({ _id, lockedBy }) => [_id, lockedBy])).toEqual([
      ['by hand', expect.stringMatching(/^pod-1~/)],
      ['counted', expect.stringMatching(/^pod-1~/)],
    ])
    await expect(boot({ module: class {}, imports: [root, inMemory()] })).rejects.toThrow(
      /expected LocksModule in apps without/,
    )
  })
})
