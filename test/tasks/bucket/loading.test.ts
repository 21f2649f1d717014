import { execFile } from 'node:child_process'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'
import { type BucketOptions, bucketLifecycle } from '../../../packages/tasks/src/bucket/index.js'
import { Storages } from '../../../packages/tasks/src/bucket/storage/index.js'
import { Unavailable } from '../../../src/phases/index.js'
import { useDatabase } from '../../support/database.js'

const database = useDatabase()

/** In a process of its own, on the built code: what it loads, and what lifecycles of buckets load before a bucket is there. */
test('who has no buckets loads no S3 client', async () => {
  const tasks = pathToFileURL(resolve(import.meta.dirname, '../../../packages/tasks/dist/index.js')).href
  const program = `
    import { registerHooks } from 'node:module'
    const loaded = []
    registerHooks({ resolve: (name, context, next) => (loaded.push(name), next(name, context)) })
    const { bucketLifecycle } = await import(${JSON.stringify(tasks)})
    const { MongoClient } = await import('mongodb')
    bucketLifecycle({ db: new MongoClient('mongodb://127.0.0.1:1').db('any') })
    console.log(JSON.stringify(loaded.filter((name) => /^@(aws-sdk|smithy)/.test(name))))`
  const cwd = resolve(import.meta.dirname, '../../..')
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], { cwd })
  expect(JSON.parse(stdout)).toEqual([])
})

test.each<[string, Partial<BucketOptions>, string]>([
  ['a prefix that no name may have', { namePrefix: 'Shop_' }, 'namePrefix: expected the name of a bucket'],
  ['a page that S3 doesn’t list', { pageSize: 2_000 }, 'pageSize: expected a whole number from 10 to 1000, got 2000'],
  ['a duration without a unit', { requestTimeout: '5' as never }, 'expected a duration'],
  ['a setting that doesn’t exist', { locktimeout: '5s' } as never, 'locktimeout'],
])('%s is refused at once', (_what, options, words) => {
  expect(() => bucketLifecycle({ db: database.db, ...options })).toThrow(words)
})

test('keys come from where a description points to, and are read anew', async () => {
  const read: unknown[] = []
  const storage = { here: { endpoint: 'http://127.0.0.1:1', credentials: { env: 'PHASELOCK_TEST_S3' } } }
  const storages = new Storages({ db: database.db, storage })
  await expect(storages.of('here')).rejects.toThrow('PHASELOCK_TEST_S3_ACCESS_KEY_ID is not set')
  process.env['PHASELOCK_TEST_S3_ACCESS_KEY_ID'] = 'a'
  process.env['PHASELOCK_TEST_S3_SECRET_ACCESS_KEY'] = 'b'
  try {
    const { client } = await storages.of('here')
    expect(await client.config.credentials()).toMatchObject({ accessKeyId: 'a', secretAccessKey: 'b' })
    expect((await storages.of('here')).client).toBe(client)
    process.env['PHASELOCK_TEST_S3_ACCESS_KEY_ID'] = 'c'
    expect(await (await storages.of('here')).client.config.credentials()).toMatchObject({ accessKeyId: 'c' })
  } finally {
    delete process.env['PHASELOCK_TEST_S3_ACCESS_KEY_ID']
    delete process.env['PHASELOCK_TEST_S3_SECRET_ACCESS_KEY']
  }
  const byReference = new Storages({
    db: database.db,
    storage: async () => ({ credentials: { secret: { vault: 's3', key: 'eu' } } }),
    secrets: async (secret) => {
      read.push(secret)
      return { accessKeyId: 'd', secretAccessKey: 'e' }
    },
  })
  expect(await (await byReference.of('any')).client.config.credentials()).toMatchObject({ accessKeyId: 'd' })
  expect(read).toEqual([{ vault: 's3', key: 'eu' }])
  const without = new Storages({ db: database.db, storage: async () => ({ credentials: { secret: 1 } }) })
  await expect(without.of('any')).rejects.toThrow(Unavailable)
})
