import { afterEach, describe, expect, test } from '@jest/globals'
import type { DynamicModule, INestApplicationContext } from '@nestjs/common'
import { ScheduleModule } from '@nestjs/schedule'
import { Test } from '@nestjs/testing'
import { InvalidSettings, readSettings, SETTINGS } from '../../src/config/index.js'
import { connectDatabase } from '../../src/database/index.js'
import { Replica } from '../../src/index.js'
import { REPLICAS_COLLECTION } from '../../src/lock/index.js'
import { LocksModule, MODULE_DATABASE, PhaselockModule, type PhaselockModuleOptions } from '../../src/nest/index.js'
import type { ModuleDatabase } from '../../src/nest/module-database.js'
import type { ModuleSettings } from '../../src/nest/options.js'
import { MODULE_SETTINGS } from '../../src/nest/tokens.js'
import { eventually, useDatabase } from '../support/database.js'
import { recordingLogger, thingWith } from '../support/thing.js'

describe('a Nest app and the environment', () => {
  const apps: INestApplicationContext[] = []
  afterEach(async () => {
    for (const app of apps.splice(0)) await app.close()
  })
  const database = useDatabase()
  const quiet = () => recordingLogger()

  async function appWith(...imports: DynamicModule[]) {
    const app = await (await Test.createTestingModule({ imports }).compile()).init()
    apps.push(app)
    return app
  }

  /** An app that works on nothing, and what it has logged about settings. */
  async function app(env: Record<string, string>, options: PhaselockModuleOptions = {}) {
    const logger = quiet()
    const made = await appWith(PhaselockModule.forRoot({ uri: database.uri, tick: false, logger, env, ...options }))
    const settings: ModuleSettings = made.get(MODULE_SETTINGS)
    const databaseName = (made.get(MODULE_DATABASE) as ModuleDatabase).of().db.databaseName
    const told = logger.lines.filter(({ message }) => message.includes('settings of the environment'))
    return { settings, databaseName, told: told.map(({ level, message }) => `${level}: ${message}`) }
  }

  const refusal = async (imports: DynamicModule) =>
    Test.createTestingModule({ imports: [imports] })
      .compile()
      .then(
        () => undefined,
        (error: unknown) => error,
      )

  test('each setting of the schema that a Nest app uses arrives in it, as it does on the command line', async () => {
    const env = {
      MONGODB_URI: database.uri,
      PHASELOCK_DATABASE: `${database.db.databaseName}-other`,
      PHASELOCK_DATA_DIR: './data',
      PHASELOCK_CONNECT_TIMEOUT: '20s',
      POD_NAME: 'api-1',
      PHASELOCK_DOORBELL: 'off',
      PHASELOCK_GRACE: '60s',
      PHASELOCK_CONCURRENCY: '7',
      PHASELOCK_THREADS: '2',
      PHASELOCK_THREAD_MEMORY: '64',
      PHASELOCK_BLOCKED_AFTER: '1s',
      PHASELOCK_CLOCK_HOLD: '30s',
      PHASELOCK_BEAT_EVERY: '5s',
      PHASELOCK_APP_VERSION: '2.7.0-rc.1',
      PHASELOCK_SWEEP_EVERY: '1m',
      PHASELOCK_TICK_EVERY: '2s',
    }
    const { settings, databaseName, told } = await app(env, { uri: '' })
    expect(settings).toMatchObject({
      uri: database.uri,
      database: env.PHASELOCK_DATABASE,
      dataDir: './data',
      connectTimeout: '20000ms',
      name: 'api-1',
      doorbell: 'off',
      grace: '60000ms',
      concurrency: 7,
      threads: 2,
      threadMemoryMb: 64,
      blockedAfter: '1000ms',
      clockHold: '30000ms',
      beatEvery: '5000ms',
      appVersion: '2.7.0-rc.1',
      sweepEvery: '60000ms',
      tickEvery: '2000ms',
    })
    expect(databaseName).toBe(readSettings(env).database)
    expect(told).toEqual([])
    // Those of named locks are read where these are opened; early recovery needs a pod.
    const apart = ['PHASELOCK_LOCKS', 'PHASELOCK_LOCKS_URL', 'PHASELOCK_MODE', 'PHASELOCK_EARLY_RECOVERY']
    const used = SETTINGS.filter(({ options }) => options).map(({ variable }) => variable)
    expect([...Object.keys(env), ...apart].sort()).toEqual([...used].sort())
  })

  test('PHASELOCK_BEAT_EVERY, _DOORBELL and POD_NAME are what its replica works by', async () => {
    const logger = quiet()
    const env = { POD_NAME: 'api-7', PHASELOCK_BEAT_EVERY: '5s', PHASELOCK_DOORBELL: 'off' }
    const lifecycles = [thingWith(async (_doc, step) => step.moveTo('Created'))]
    const root = PhaselockModule.forRoot({ uri: database.uri, logger, env, lifecycles })
    const replica = (await appWith(ScheduleModule.forRoot(), root)).get(Replica)
    expect(replica.status()).toMatchObject({ identity: expect.stringMatching(/^api-7~/), doorbell: 'off' })
    await replica.tick()
    const documents = database.db.collection<{ _id: string }>(REPLICAS_COLLECTION)
    await eventually(async () =>
      expect(await documents.findOne({ _id: replica.identity })).toMatchObject({ everyMs: 5_000 }),
    )
  })

  test('PHASELOCK_EARLY_RECOVERY=on is early recovery, which needs a pod; `alongside` in code wins', async () => {
    const env = { PHASELOCK_EARLY_RECOVERY: 'on' }
    expect(String(await refusal(PhaselockModule.forRoot({ uri: database.uri, tick: false, env })))).toMatch(
      /early recovery: expected POD_NAME and POD_NAMESPACE/,
    )
    const { told } = await app(env, { alongside: [] })
    expect(told).toEqual([expect.stringContaining('PHASELOCK_EARLY_RECOVERY (alongside)')])
  })

  test('options in code win, and the log says so where both are set to different things; values are not printed', async () => {
    const env = { MONGODB_URI: 'mongodb://me:secret@elsewhere/x', PHASELOCK_GRACE: '60s', PHASELOCK_DOORBELL: 'off' }
    const { settings, told } = await app(env, { grace: '5s', doorbell: 'off' })
    expect(settings).toMatchObject({ uri: database.uri, grace: '5s', doorbell: 'off' })
    expect(told).toEqual([
      "info: these settings of the environment have no effect, because PhaselockModule's option wins: MONGODB_URI (uri), PHASELOCK_GRACE (grace)",
    ])
    expect((await app({ PHASELOCK_GRACE: '60s' }, { grace: '1m' })).told).toEqual([])
  })

  test('a variable whose option wins stops no app, whatever it holds; others do', async () => {
    const { settings, told } = await app(
      { PHASELOCK_GRACE: '5', PHASELOCK_DOORBELL: 'loud' },
      { grace: '5s', doorbell: 'off' },
    )
    expect(settings).toMatchObject({ grace: '5s', doorbell: 'off' })
    expect(told).toEqual([expect.stringContaining('PHASELOCK_DOORBELL (doorbell), PHASELOCK_GRACE (grace)')])
    const env = { PHASELOCK_GRACE: '5', PHASELOCK_DOORBELL: 'loud' }
    const refused = String(await refusal(PhaselockModule.forRoot({ uri: database.uri, tick: false, env, grace: '5s' })))
    expect(refused).toContain('PHASELOCK_DOORBELL')
    expect(refused).not.toContain('PHASELOCK_GRACE')
    const locks = { PHASELOCK_MODE: 'both' }
    expect(String(await refusal(LocksModule.forRoot({ env: locks })))).toContain('PHASELOCK_MODE')
    expect(await refusal(LocksModule.forRoot({ provider: 'memory', mode: 'single', env: locks }))).toBeUndefined()
  })

  test('its own handle on the database wins over settings of the connection', async () => {
    const connection = await connectDatabase({ uri: database.uri })
    try {
      const env = { PHASELOCK_DATABASE: 'other', PHASELOCK_CONNECT_TIMEOUT: '20s', MONGODB_URI: database.uri }
      const { databaseName, told } = await app(env, { uri: undefined, connection })
      expect(databaseName).toBe(database.db.databaseName)
      expect(told).toEqual([
        expect.stringContaining('wins: PHASELOCK_DATABASE (connection), PHASELOCK_CONNECT_TIMEOUT (connection)'),
      ])
    } finally {
      await connection.close()
    }
  })

  test('settings of the command line alone are named: they have no effect here', async () => {
    const { told } = await app({ PHASELOCK_HTTP: '9400', PHASELOCK_LIFECYCLES: '/app/lifecycles.mjs' })
    expect(told).toEqual([
      'info: these settings of the environment have no effect in a Nest app, only on the command line: PHASELOCK_LIFECYCLES, PHASELOCK_HTTP',
    ])
  })

  test.each([
    [
      { PHASELOCK_HTPP: '9400' },
      "PHASELOCK_HTPP: expected a known setting, got an unknown one; did you mean 'PHASELOCK_HTTP'?",
    ],
    [{ PHASELOCK_GRACE: '60' }, 'PHASELOCK_GRACE: expected a duration from 0s to 1h'],
  ])('%j is refused, as on the command line, and by LocksModule too', async (env, problem) => {
    const roots = [
      PhaselockModule.forRoot({ uri: database.uri, tick: false, env }),
      PhaselockModule.forRootAsync({ useFactory: () => ({ uri: database.uri, tick: false, env }) }),
      LocksModule.forRoot({ provider: 'memory', env }),
    ]
    for (const root of roots) {
      const error = await refusal(root)
      expect(error).toBeInstanceOf(InvalidSettings)
      expect((error as InvalidSettings).problems).toEqual([expect.stringContaining(problem)])
    }
    expect(() => readSettings(env)).toThrow(problem)
  })
})
