import { expect, test } from '@jest/globals'
import { MongoClient, type MongoClientOptions } from 'mongodb'
import { carriedOptions, secondClient } from '../../src/nest/second-client.js'

const secondOf = (uri: string, options: MongoClientOptions) =>
  new MongoClient(uri, carriedOptions(new MongoClient(uri, options).options as never))

test('a second client has what the first was given besides its connection string: credentials, TLS, the set', () => {
  const given = {
    auth: { username: 'ann', password: 'p@ss' },
    authSource: 'users',
    authMechanism: 'SCRAM-SHA-256',
    tls: true,
    tlsAllowInvalidCertificates: true,
    replicaSet: 'rs0',
    directConnection: false,
    maxPoolSize: 3,
  } as const
  const { options } = secondOf('mongodb://h:27017/app', given)
  expect(options.credentials).toMatchObject({
    username: 'ann',
    password: 'p@ss',
    source: 'users',
    mechanism: 'SCRAM-SHA-256',
  })
  expect(options).toMatchObject({ tls: true, rejectUnauthorized: false, replicaSet: 'rs0', directConnection: false })
  expect(options.maxPoolSize).not.toBe(3)
})

test('credentials in the connection string stay, and none are made up', () => {
  expect(secondOf('mongodb://bea:x@h/app?authSource=admin', {}).options.credentials).toMatchObject({
    username: 'bea',
    password: 'x',
    source: 'admin',
  })
  expect(secondOf('mongodb://h/app', {}).options.credentials).toBeUndefined()
})

test('what tells no connection string has no second client', async () => {
  expect(await secondClient(undefined, 30_000)).toBeUndefined()
  expect(await secondClient({ s: {} }, 30_000)).toBeUndefined()
  expect(await secondClient({ s: { url: 'nothing' } }, 30_000)).toBeUndefined()
})
