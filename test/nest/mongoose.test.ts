import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { Module } from '@nestjs/common'
import { ScheduleModule } from '@nestjs/schedule'
import { Test, type TestingModule } from '@nestjs/testing'
import { type CommandStartedEvent, MongoClient } from 'mongodb'
import { type Connection, createConnection, Schema } from 'mongoose'
import { lifecycleOf } from '../../src/index.js'
import { InvalidModuleOptions, PhaselockModule, type PhaselockModuleOptions } from '../../src/nest/index.js'
import { durableThere, eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { Accounts, keepingLogger, MailboxModule } from './sample.js'

const database = useDatabase()
let proxy: TcpProxy
let connection: Connection
let app: TestingModule | undefined

beforeEach(async () => {
  proxy = await TcpProxy.start(database.uri)
})

afterEach(async () => {
  proxy.pass()
  await app?.close()
  app = undefined
  await connection.close()
  await proxy.stop()
})

const CONNECTION = 'their connection'

/** A module of the app that has its own connection, as MongooseModule has. */
@Module({ providers: [{ provide: CONNECTION, useFactory: () => connection }], exports: [CONNECTION] })
class TheirDatabaseModule {}

async function boot(optionsOf: (theirs: Connection) => PhaselockModuleOptions) {
  const logger = keepingLogger()
  const root = PhaselockModule.forRootAsync({
    imports: [TheirDatabaseModule],
    inject: [CONNECTION],
    useFactory: (theirs: Connection) => ({ logger, name: 'pod-1', ...optionsOf(theirs) }),
  })
  app = await Test.createTestingModule({ imports: [ScheduleModule.forRoot(), root, MailboxModule] }).compile()
  await app.init()
  return { app, logger }
}

/** Commands that came over the app's own client. */
function theirCommands(of: Connection): string[] {
  const names: string[] = []
  of.getClient().on('commandStarted', ({ commandName }: CommandStartedEvent) => void names.push(commandName))
  return names
}

const isWrite = ({ name }: { name: string }) => ['insert', 'update', 'delete', 'findAndModify'].includes(name)

describe("a Mongoose connection with careless settings, passed in by forRootAsync's factory", () => {
  beforeEach(() => {
    // Still opening when the factory is called; endless timeouts are the driver's default.
    connection = createConnection(proxy.uri, {
      writeConcern: { w: 1 },
      readPreference: 'nearest',
      monitorCommands: true,
    })
  })

  test('documents of a Mongoose model are worked on, over our client and with our write concern', async () => {
    const { app: context, logger } = await boot((theirs) => ({ connection: theirs }))
    expect(logger.lines.filter((line) => line.level === 'warn')).toEqual([])
    const theirs = theirCommands(connection)
    const model = connection.model('Mailbox', new Schema({ _id: String, phase: String }, { collection: 'Mailbox' }))
    await model.create({ _id: 'ann', phase: 'Creating' })
    await eventually(async () => (await context.get(Accounts).mailboxes.find('ann'))?.phase === 'Created')
    // What the app's own client sent is the app's own: nothing of the replica's, which only it can have sent.
    expect(theirs).not.toContain('aggregate')
    expect(theirs).not.toContain('update')
    expect(theirs).not.toContain('findAndModify')
    const writes = proxy.seen.filter(isWrite).filter(({ name }) => name !== 'insert')
    expect(writes.length).toBeGreaterThan(1)
    const durable = await durableThere(database.db)
    for (const { body } of writes) expect(body['writeConcern']).toEqual(durable)
  })

  test("an owner's call goes over the app's own client", async () => {
    const { app: context } = await boot((theirs) => ({ connection: theirs, tick: false, doorbell: 'off' }))
    const theirs = theirCommands(connection)
    await context.get(Accounts).mailboxes.insert({ _id: 'ann' })
    await context.get(Accounts).mailboxes.setState('ann', 'Deleted')
    expect(theirs).toEqual(['insert', 'update'])
  })

  test('our timeouts hold: over a dead connection a look ends within a third of lockTimeout, and work goes on after it', async () => {
    const quick = lifecycleOf<{ _id: string }>()
      .define({
        name: 'quick',
        collection: 'Quick',
        phases: { Working: { next: ['Done'] }, Done: { rest: true } },
        lockTimeout: '3s',
      })
      .handle({ Working: async (_doc, step) => step.moveTo('Done') })
    const { logger } = await boot((theirs) => ({ connection: theirs, lifecycles: [quick] }))
    proxy.blackhole()
    // The endless wait of the app's own client would keep the first look, and so the ticks, for ever.
    await eventually(() => logger.lines.some(({ message }) => message.includes('the tick')))
    proxy.pass()
    await quick.insert({ _id: 'a' })
    await eventually(async () => (await quick.find('a'))?.phase === 'Done')
  })

  test('is open still when the app has closed', async () => {
    const { app: context } = await boot((theirs) => ({ connection: theirs }))
    await context.close()
    expect(connection.readyState).toBe(1)
  })
})

test('a client whose waits all end within a third of lockTimeout is used itself', async () => {
  const waits = ['serverSelectionTimeoutMS', 'connectTimeoutMS', 'socketTimeoutMS', 'waitQueueTimeoutMS']
  const limits = Object.fromEntries(waits.map((name) => [name, 9_000]))
  const client = await new MongoClient(proxy.uri, {
    ...limits,
    writeConcern: { w: 1 },
    monitorCommands: true,
  }).connect()
  connection = createConnection()
  try {
    const theirs: string[] = []
    client.on('commandStarted', ({ commandName }) => void theirs.push(commandName))
    const { app: context } = await boot(() => ({ client, database: database.db.databaseName }))
    await context.get(Accounts).mailboxes.insert({ _id: 'ann' })
    await eventually(async () => (await context.get(Accounts).mailboxes.find('ann'))?.phase === 'Created')
    await context.close()
    expect(theirs).toEqual(expect.arrayContaining(['aggregate', 'findAndModify', 'update']))
    const durable = await durableThere(database.db)
    for (const { body } of proxy.seen.filter(isWrite).filter((one) => one.body['insert'] !== 'phaselock.doorbell')) {
      expect(body['writeConcern']).toEqual(durable)
    }
  } finally {
    await client.close()
  }
})

test('a connection that was never opened is refused, with what to do', async () => {
  connection = createConnection()
  const failed = await boot((theirs) => ({ connection: theirs })).catch((error) => error)
  expect(failed).toBeInstanceOf(InvalidModuleOptions)
  expect(failed.message).toContain('expected an open connection, but it has no db; open it before the app starts')
})
