import { expect, test } from '@jest/globals'
import { MongoClient, type MongoClientOptions } from 'mongodb'
import { carriedOptions, secondClient, uriOf } from '../../src/nest/second-client.js'

const secondOf = (uri: string, options: MongoClientOptions) => secondTo(new MongoClient(uri, options))
const secondTo = ({ options }: MongoClient) => new MongoClient(uriOf(options)!, carriedOptions(options as never))

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

test.each([
  'mongodb://h/app',
  'mongodb://a:27017,b:27018,c:27019/app?replicaSet=rs0',
  'mongodb://[::1]:27018/',
  'mongodb://%2Ftmp%2Fmongodb-27017.sock/app',
  'mongodb://h/?compressors=zlib&zlibCompressionLevel=5&maxIdleTimeMS=5000&tls=true&tlsInsecure=true',
  'mongodb://h/?loadBalanced=true',
])('what a connection string says goes to the second client by the public options of the first: %s', (uri) => {
  const [{ options: first }, { options: second }] = [new MongoClient(uri), secondOf(uri, {})]
  for (const name of [
    'hosts',
    'replicaSet',
    'compressors',
    'maxIdleTimeMS',
    'tls',
    'rejectUnauthorized',
    'loadBalanced',
  ] as const)
    expect([name, second[name]]).toEqual([name, first[name]])
})

test('hosts that come from DNS are looked up again, so that the second client follows them too', () => {
  const { options } = secondOf('mongodb+srv://bea:x@cluster0.example.net/app?srvMaxHosts=2', {})
  expect(options).toMatchObject({ srvHost: 'cluster0.example.net', srvMaxHosts: 2, tls: true })
  expect(options.credentials).toMatchObject({ username: 'bea', password: 'x' })
})

test('what tells no hosts has no second client', async () => {
  expect(await secondClient(undefined, 30_000)).toBeUndefined()
  expect(await secondClient({ options: {} }, 30_000)).toBeUndefined()
  expect(await secondClient({ options: { hosts: [''] } }, 30_000)).toBeUndefined()
})
