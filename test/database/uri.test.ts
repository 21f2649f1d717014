import { createServer, type Socket } from 'node:net'
import { inspect } from 'node:util'
import { describe, expect, it } from '@jest/globals'
import {
  connectDatabase,
  DatabaseUnreachable,
  InvalidMongoUri,
  redactUri,
  renewalClient,
} from '../../src/database/index.js'
import { unreachableReason } from '../../src/database/unreachable.js'
import { withoutProtocolOptions } from '../../src/database/uri.js'
import { systemClock } from '../../src/time/index.js'
import { testDatabase } from '../support/database.js'

const failure = async (uri: string, timeoutMs = 3_000) =>
  (await connectDatabase({ uri, timeout: `${timeoutMs}ms`, env: {} }).then(
    () => undefined,
    (error: unknown) => error,
  )) as Error

describe('a URI', () => {
  it.each([
    'localhost:27017',
    'http://user:s3cr3tPw@host',
    'mongodb://',
    'mongodb://user:s3cr3tPw@host:99999',
    'mongodb://user:s3cr3tPw@host/?nonsense=1',
    'mongodb://user:s3cr3tPw@host/?w=majority&maxPoolSize=many',
    'mongodb://user:s3cr3tPw@x@host/db',
    'mongodb://user:s3cr3tPw/x@host/db',
    'mongodb://user:s3cr3tPw?x@host/db',
    'mongodb://user:%zzs3cr3tPw@host/db',
    'mongodb://us:er:s3cr3tPw@host/db',
    'mongodb+srv://user:s3cr3tPw@a.example.com:27017',
  ])('that is malformed is refused with what was expected and came, without the password: %s', async (uri) => {
    const error = await failure(uri)
    expect(error).toBeInstanceOf(InvalidMongoUri)
    expect(error.message).toMatch(
      /^expected a connection string such as mongodb:\/\/.* in the uri option, got .*: .*\. Correct it/s,
    )
    expect(inspect(error, { depth: 9 })).not.toContain('s3cr3tPw')
  })

  it('is named by where it came from', async () => {
    const error = await connectDatabase({ env: { MONGODB_URI: 'nonsense' } }).catch((thrown: Error) => thrown)
    expect(String(error)).toContain('in MONGODB_URI, got')
    // As `uri: process.env.MONGODB_URI` has it.
    const passedOn = connectDatabase({ uri: 'nonsense', env: { MONGODB_URI: 'nonsense' } })
    expect(String(await passedOn.catch((thrown: Error) => thrown))).toContain('in MONGODB_URI, got')
  })

  it('with an option by its former name is refused with the new one', async () => {
    const options = { uri: 'mongodb://127.0.0.1:1', timeoutMs: 100, lockTimeoutMs: 3_000 }
    await expect(connectDatabase(options as never)).rejects.toThrow(
      'connectDatabase: expected timeout, got timeoutMs: it is called timeout now; expected lockTimeout, got lockTimeoutMs: it is called lockTimeout now',
    )
  })

  it.each([
    [5, 'connectDatabase: expected an object, got 5'],
    [{ uri: 5 }, 'connectDatabase: uri: expected a string, got 5'],
    [
      { timeout: '5' },
      "connectDatabase: timeout: expected a duration from 1ms to 1d, such as '500ms', '30s' or '5m', got '5'",
    ],
    [{ url: 'x' }, "connectDatabase: unknown option 'url'"],
  ])('options that it cannot use: %p', async (options, message) => {
    await expect(connectDatabase(options as never)).rejects.toThrow(message)
  })

  it('the clients beside it need a connection', async () => {
    await expect(renewalClient({} as never)).rejects.toThrow(
      'renewalClient: expected what connectDatabase() gave, got ',
    )
  })

  it('whose server refuses says so within its timeout, what to do, and never the password', async () => {
    const port = 1 // nobody listens there
    const error = (await failure(`mongodb://user:s3cr3tPw@127.0.0.1:${port}/db`)) as DatabaseUnreachable
    expect(error).toBeInstanceOf(DatabaseUnreachable)
    expect(error.reason).toBe('refused')
    expect(error.message).toContain(`expected a MongoDB server at mongodb://user:***@127.0.0.1:${port}/db, got: `)
    expect(error.message).toContain('start the server, or correct the host and port')
    expect(inspect(error, { depth: 9 })).not.toContain('s3cr3tPw')
  })

  it('whose server never answers fails within its timeout', async () => {
    const sockets: Socket[] = []
    const silent = createServer((socket) => void sockets.push(socket.on('error', () => undefined)))
    silent.listen(0, '127.0.0.1')
    await new Promise((resolve) => silent.once('listening', resolve))
    const start = systemClock.monotonicMs()
    const error = (await failure(
      `mongodb://127.0.0.1:${(silent.address() as { port: number }).port}`,
      500,
    )) as DatabaseUnreachable
    expect(error).toBeInstanceOf(DatabaseUnreachable)
    expect(error.reason).toBe('timeout')
    expect(systemClock.monotonicMs() - start).toBeLessThan(25_000) // the driver's own limit is 30 s
    // Else both ends would keep this process alive: the driver waits on for the answer to its first greeting.
    for (const socket of sockets) socket.destroy()
    silent.close()
  })

  it('names the database in its path; an option wins, and without both it is phaselock', async () => {
    const test = await testDatabase()
    const server = test.uri.replace(/(\d)\/[^?]*/, '$1/')
    for (const [options, name] of [
      [{ uri: test.uri }, test.db.databaseName],
      [{ uri: test.uri, database: 'chosen' }, 'chosen'],
      [{ uri: server }, 'phaselock'],
    ] as const) {
      const connection = await connectDatabase(options)
      expect(connection.db.databaseName).toBe(name)
      await connection.close()
    }
    await test.drop()
  })
})

it.each([
  ['connect ECONNREFUSED 127.0.0.1:1', 1, 'refused'],
  ['getaddrinfo ENOTFOUND nowhere', 1, 'no-such-host'],
  ['Authentication failed.', 18, 'authentication'],
  ['Server selection timed out after 30 ms', 1, 'timeout'],
  ['odd', 1, 'other'],
])('an error of the driver, %s (%d), is told as %s', (said, code, reason) => {
  expect(unreachableReason(Object.assign(new Error(said), { code }))).toBe(reason)
})

it.each([
  ['mongodb://h/db', 'mongodb://h/db'],
  ['mongodb://u:p@h/db?authSource=admin', 'mongodb://u:***@h/db?authSource=admin'],
  ['mongodb://u:p@ss/w@h/db', 'mongodb://u:***@h/db'],
  ['mongodb://h/?tlsCertificateKeyFilePassword=p&tls=true', 'mongodb://h/?tlsCertificateKeyFilePassword=***&tls=true'],
])('%s is printed as %s', (uri, printed) => expect(redactUri(uri)).toBe(printed))

it.each([
  ['mongodb://h/db', 'mongodb://h/db'],
  ['mongodb://h/db?w=1&J=false&journal=false&readPreference=secondary', 'mongodb://h/db'],
  [
    'mongodb://h/db?retryWrites=false&tls=true&socketTimeoutMS=0&maxPoolSize=5',
    'mongodb://h/db?tls=true&maxPoolSize=5',
  ],
])('of the options in %s the protocol leaves %s', (uri, kept) => expect(withoutProtocolOptions(uri)).toBe(kept))

describe('the settings of the environment', () => {
  it('are read by a program that connects, by the schema of the command line; options win, and say so', async () => {
    const test = await testDatabase()
    const env = {
      MONGODB_URI: test.uri,
      PHASELOCK_DATABASE: 'chosen',
      PHASELOCK_CONNECT_TIMEOUT: '20s',
      PHASELOCK_GRACE: '60s',
    }
    const said: string[] = []
    const log = (message: string) => void said.push(message)
    for (const [options, name] of [
      [{ env }, 'chosen'],
      [{ env, uri: test.uri }, 'chosen'],
      [{ env: { ...env, PHASELOCK_DATABASE: ' ' } }, test.db.databaseName],
      [{ env, database: undefined }, 'chosen'],
    ] as const) {
      const connection = await connectDatabase({ ...options, log })
      expect(connection.db.databaseName).toBe(name)
      await connection.close()
    }
    expect(said).toEqual([])
    const connection = await connectDatabase({ env, log, database: 'of-code', timeout: '10s' })
    expect(connection.db.databaseName).toBe('of-code')
    await connection.close()
    expect(said).toEqual([
      "these settings of the environment have no effect, because connectDatabase's option wins: PHASELOCK_DATABASE (database), PHASELOCK_CONNECT_TIMEOUT (timeout)",
    ])
    await test.drop()
  })

  it.each([
    [{ PHASELOCK_DATABSE: 'x' }, 'PHASELOCK_DATABSE: expected a known setting'],
    [{ PHASELOCK_DATABASE: 'a b' }, "PHASELOCK_DATABASE: expected a database's name"],
    [{ PHASELOCK_CONNECT_TIMEOUT: '5' }, 'PHASELOCK_CONNECT_TIMEOUT: expected a duration'],
  ])('that can not be used are refused: %j', async (env, message) => {
    const uri = 'mongodb://127.0.0.1:1'
    const error = await connectDatabase({ uri, env }).catch((thrown: Error) => thrown)
    expect(error).toMatchObject({ name: 'InvalidSettings', message: expect.stringContaining(message) })
  })

  it('that are wrong stop nothing where an option wins', async () => {
    const env = { MONGODB_URI: 'what', PHASELOCK_DATABASE: 'a b', PHASELOCK_CONNECT_TIMEOUT: '5' }
    const uri = 'mongodb://127.0.0.1:1'
    const connecting = connectDatabase({ uri, env, database: 'of-code', timeout: '100ms', log: () => undefined })
    await expect(connecting).rejects.toMatchObject({ name: 'DatabaseUnreachable' })
  })
})
