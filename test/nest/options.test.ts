import { expect, test } from '@jest/globals'
import { Test } from '@nestjs/testing'
import { InvalidModuleOptions, LocksModule, PhaselockModule } from '../../src/nest/index.js'

/** What an app with these options fails with; they come before any database is opened. */
async function refused(options: object): Promise<string> {
  const error = await Test.createTestingModule({ imports: [PhaselockModule.forRoot(options)] })
    .compile()
    .then(
      () => undefined,
      (thrown: unknown) => thrown,
    )
  expect(error).toBeInstanceOf(InvalidModuleOptions)
  return (error as Error).message
}

test('an unknown option is refused with the known ones', async () => {
  expect(await refused({ tik: false })).toMatch(
    /unknown option 'tik' \(did you mean 'tick'\?\); known: uri, client, .*tick.*onTransition/,
  )
})

test('each wrong value is named, with what was expected and what came', async () => {
  const message = await refused({
    uri: 5,
    tick: 'no',
    grace: '10',
    name: '',
    logger: { info() {} },
    onParked: 'me',
    lifecycles: [{ name: 'x' }],
  })
  expect(message).toContain('  - uri: expected a string, got 5\n')
  expect(message).toContain("tick: expected true or false, got 'no'")
  expect(message).toMatch(/grace: expected a duration from 0s to 1h, such as '500ms', .* got '10'/)
  expect(message).toContain("name: expected a replica's name of at most 253 characters without ~ and #, got ''")
  expect(message).toContain('logger: expected an object with debug, info, warn and error, got an object with info')
  expect(message).toContain("onParked: expected a function, got 'me'")
  expect(message).toContain(
    'lifecycles.0: expected a lifecycle with its handlers (`lifecycle.handle({ ... })`), got an object with name',
  )
})

test('one database: two of uri, client, db and connection, or a client without its database, are refused', async () => {
  const client = { db() {}, connect() {} }
  const db = { collection() {}, command() {} }
  expect(await refused({ uri: 'mongodb://h', db })).toContain(
    'expected one of uri, client, db, connection, got uri and db; keep one',
  )
  expect(await refused({ client })).toContain("client: expected the database's name too; add `database: '...'`")
  expect(await refused({ db, database: 'x' })).toContain('database: db already names its database; remove it')
  expect(await refused({ db: client })).toContain(
    'db: expected a Db of the mongodb driver, got an object with db, connect',
  )
})

test('a handle that is not there yet is refused, not replaced by another database; a connection string may be missing', async () => {
  expect(await refused({ db: undefined })).toContain('db: expected a value, got undefined; is the connection open')
  expect(await refused({ uri: undefined, name: '' })).not.toContain('uri')
})

test('options from a factory are checked too', async () => {
  const root = PhaselockModule.forRootAsync({ useFactory: () => 'mongodb://h' as never })
  const failed = await Test.createTestingModule({ imports: [root] })
    .compile()
    .catch((error) => error)
  expect(failed).toBeInstanceOf(InvalidModuleOptions)
  expect(failed.message).toContain('expected an object')
})

test.each([
  ['PhaselockModule', (options: never) => PhaselockModule.forRootAsync(options)],
  ['LocksModule', (options: never) => LocksModule.forRootAsync(options)],
])('%s.forRootAsync without a factory, or with one that returns nothing, is refused', async (name, forRootAsync) => {
  const called = `${name}.forRootAsync: `
  expect(() => forRootAsync(undefined as never)).toThrow(`${called}expected an object, got undefined`)
  expect(() => forRootAsync({ useFactory: 'x' } as never)).toThrow(
    `${called}useFactory: expected a function that returns the options, got 'x'`,
  )
  expect(() => forRootAsync({ useFactroy: () => ({}) } as never)).toThrow("did you mean 'useFactory'?")
  const imports = [forRootAsync({ useFactory: () => undefined } as never)]
  await expect(Test.createTestingModule({ imports }).compile()).rejects.toThrow(
    `${called}expected useFactory to return the options, got undefined`,
  )
})

test('a name that no database can have is refused', async () => {
  expect(await refused({ database: 'a/b.$' })).toContain(
    "database: expected the name of a database (1 to 63 characters, no space and none of / \\ . \" $ * < > : | ?), got 'a/b.$'",
  )
})

test('threads, their memory and the limit of the event loop have a range and a unit', async () => {
  const message = await refused({ threads: 0, threadMemoryMb: 1.5, blockedAfter: '200' })
  expect(message).toContain('threads: expected a whole number from 1 to 256')
  expect(message).toContain('threadMemoryMb: expected a whole number from 16 to 65536')
  expect(message).toMatch(/blockedAfter: expected a duration from 0ms to 1m, such as '500ms' or .* got '200'/)
})
