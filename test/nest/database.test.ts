import { afterEach, describe, expect, test } from '@jest/globals'
import { ScheduleModule } from '@nestjs/schedule'
import { Test, type TestingModule } from '@nestjs/testing'
import { MongoClient } from 'mongodb'
import { connectDatabase } from '../../src/database/index.js'
import { Replica } from '../../src/index.js'
import { PhaselockModule, type PhaselockModuleOptions } from '../../src/nest/index.js'
import { useDatabase } from '../support/database.js'
import { Accounts, keepingLogger, MailboxModule } from './sample.js'

const database = useDatabase()
let app: TestingModule | undefined

afterEach(async () => {
  await app?.close()
  app = undefined
})

async function boot(options: PhaselockModuleOptions) {
  const logger = keepingLogger()
  app = await Test.createTestingModule({
    imports: [ScheduleModule.forRoot(), PhaselockModule.forRoot({ logger, ...options }), MailboxModule],
  }).compile()
  await app.init()
  return { app, warnings: logger.lines.filter((line) => line.level === 'warn').map((line) => line.message) }
}

async function worksAndCloses(context: TestingModule) {
  const { mailboxes } = context.get(Accounts)
  await mailboxes.insert({ _id: 'ann' })
  await context.get(Replica).runOnce()
  await context.close()
  const doc = await database.db.collection<{ _id: string }>('Mailbox').findOne({ _id: 'ann' })
  expect(doc).toMatchObject({ phase: 'Created' })
}

/** A closed client refuses commands. */
const isOpen = (client: MongoClient) =>
  client
    .db('admin')
    .command({ ping: 1 })
    .then(
      () => true,
      () => false,
    )

describe("an app's own database", () => {
  test('a client with the name of its database; renewals get a second client, and only that one is closed', async () => {
    const name = database.db.databaseName
    const { app: context, warnings } = await boot({ client: database.client, database: name })
    expect(warnings).toEqual([])
    await worksAndCloses(context)
    expect(await isOpen(database.client)).toBe(true)
  })

  test('a Db', async () => {
    const { app: context, warnings } = await boot({ db: database.db })
    expect(warnings).toEqual([])
    await worksAndCloses(context)
    expect(await isOpen(database.client)).toBe(true)
  })

  test('a Db whose client does not tell its connection string: renewals share it, and a warning says so', async () => {
    const db = new Proxy(database.db, {
      get: (target, key) => (key === 'client' ? undefined : bound(target, key)),
    })
    const { app: context, warnings } = await boot({ db })
    expect(warnings).toEqual([expect.stringContaining("leases are renewed over the app's own connections")])
    await worksAndCloses(context)
  })

  test('a connection from connectDatabase(): closed by whoever opened it', async () => {
    const connection = await connectDatabase({ uri: database.uri })
    const { app: context, warnings } = await boot({ connection })
    expect(warnings).toEqual([])
    await worksAndCloses(context)
    expect(await isOpen(connection.client)).toBe(true)
    await connection.close()
  })
})

describe('a database that the module opens', () => {
  test('is closed with the app', async () => {
    const { app: context } = await boot({ uri: database.uri })
    const { documents } = context.get(Accounts).mailboxes.owner()
    await worksAndCloses(context)
    await expect(documents.findOne()).rejects.toThrow(/closed|connected/)
  })

  test('takes its name from `database` first', async () => {
    const name = database.db.databaseName
    const server = database.uri.replace(`/${name}`, '/elsewhere')
    const { app: context } = await boot({ uri: server, database: name })
    await worksAndCloses(context)
  })

  test('that can not be used is the error of connectDatabase at start', async () => {
    const failed = await boot({ uri: 'http://127.0.0.1' }).catch((error) => error)
    expect(failed.name).toBe('InvalidMongoUri')
  })
})

function bound(target: object, key: string | symbol): unknown {
  const value = Reflect.get(target, key, target)
  return typeof value === 'function' ? value.bind(target) : value
}
