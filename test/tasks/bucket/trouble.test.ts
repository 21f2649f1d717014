import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DeleteBucketPolicyCommand } from '@aws-sdk/client-s3'
import { afterEach, expect, test } from '@jest/globals'
import type { Document, ObjectId } from 'mongodb'
import { StorageForbidden } from '../../../packages/tasks/src/bucket/index.js'
import { Requests, Storages } from '../../../packages/tasks/src/bucket/storage/index.js'
import { Unavailable } from '../../../src/phases/index.js'
import { describeWithS3, useWorld } from './world.js'

describeWithS3('a storage with trouble', () => {
  const world = useWorld()
  const closing: (() => unknown)[] = []
  afterEach(async () => {
    for (const close of closing.splice(0)) await close()
  })

  /** Waits without using attempts, and says why. */
  const expectWaiting = (id: ObjectId, reason: RegExp, fields: Document = {}) =>
    world.until(async () => {
      const { progress, ...document } = await world.document(id)
      expect(document).toMatchObject(fields)
      expect(progress).toMatchObject({ attempts: 0, waitingFor: expect.stringMatching(reason) })
    })

  async function stub(answer: RequestListener): Promise<string> {
    const server = createServer(answer).listen(0, '127.0.0.1')
    await once(server, 'listening')
    closing.push(() => {
      server.closeAllConnections()
      server.close()
    })
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  }

  test('away: documents wait, without using attempts; back: they go on', async () => {
    const replica = world.replica()
    const [first, second] = [
      await world.insert({ name: 'away-1', versioning: true }),
      await world.insert({ name: 'away-2' }),
    ]
    await world.untilPhase(first, 'Created')
    await world.fill('away-1')
    await world.server.kill9()
    await world.write(first, { state: 'Deleted' })
    await world.write(second, { state: 'Updating' })
    await expectWaiting(first, /s3:GetBucketTagging: .*ECONN/, { phase: 'Deleting' })
    await world.untilPhase(second, 'Updating')
    await world.server.restart()
    await world.until(async () => {
      for (const id of [first, second]) await replica.lifecycle.wake(id)
      expect(await world.document(second)).toMatchObject({ phase: 'Created', state: 'Available' })
      expect(await world.document(first)).toEqual({})
    })
    expect(await world.buckets()).toEqual(['away-2'])
    await world.write(second, { state: 'Deleted' })
    await world.untilPhase(second, undefined)
  })

  test('objects that can’t be deleted are gone past, and named; then looked at again', async () => {
    const replica = world.replica({ storage: world.clientOf('others'), pageSize: 10 })
    const us = { Principal: { AWS: ['others'] } }
    const Action = ['s3:DeleteObject', 's3:DeleteObjectVersion']
    const locked = { ...us, Effect: 'Deny', Action, Resource: 'arn:aws:s3:::locked/a-*' }
    const policy = [{ ...us, Effect: 'Allow', Action: 's3:*' }, locked]
    const id = await world.insert({ name: 'locked', policy })
    await world.untilPhase(id, 'Created')
    for (let n = 0; n < 12; n += 1) for (const folder of ['a', 'b']) await world.put('locked', `${folder}-${n}`)
    await world.write(id, { state: 'Deleted' })
    const reason = /^12 objects of bucket locked that can't be deleted, the first one: object a-0: AccessDenied/
    await world.until(async () => expect((await world.document(id))['progress'].waitingFor).toMatch(reason))
    expect(await world.versions('locked')).toBe(12)
    await world.client.send(new DeleteBucketPolicyCommand({ Bucket: 'locked' }))
    await replica.lifecycle.wake(id)
    await world.untilPhase(id, undefined)
  })

  test('missing rights are named, and use attempts', async () => {
    world.replica({ storage: world.clientOf('tenant') })
    const id = await world.insert({ name: 'not-allowed' })
    await world.until(async () => expect((await world.document(id))['progress'].attempts).toBeGreaterThanOrEqual(1))
    expect((await world.document(id))['progress'].error).toMatchObject({
      name: 'StorageForbidden',
      message: expect.stringContaining('s3:CreateBucket on bucket not-allowed of the default region is not allowed'),
    })
  })

  test('another clock than the storage’s: waited for, and then made up for', async () => {
    const replica = world.replica({ storage: world.clientOf('ours', { systemClockOffset: 3_600_000 }) })
    const id = await world.insert({ name: 'other-clock' })
    await expectWaiting(id, /clock .* differ/)
    await replica.lifecycle.wake(id)
    await world.untilPhase(id, 'Created')
    await world.write(id, { state: 'Deleted' })
    await world.untilPhase(id, undefined)
  })

  test('regions: a missing, a wrong and an unreachable one wait for somebody to correct them; another goes on', async () => {
    const replica = world.replica({ storage: undefined, secrets: async (secret) => keys(String(secret)) })
    const { endpoint, region, secretAccessKey } = world.server
    const keys = (accessKeyId: string) => ({ accessKeyId, secretAccessKey })
    const folder = await mkdtemp(join(tmpdir(), 'phaselock-keys-'))
    closing.push(() => rm(folder, { recursive: true, maxRetries: 10 }))
    await writeFile(join(folder, 'accessKeyId'), 'ours\n')
    await writeFile(join(folder, 'secretAccessKey'), `${secretAccessKey}\n`)
    const describe = (_id: string, storage: Document) =>
      world.database.db.collection<{ _id: string }>('StorageRegion').replaceOne({ _id }, storage, { upsert: true })
    const ids: Record<string, ObjectId> = {}
    const wrong = {
      missing: /no storage for region missing/,
      wrong: /described wrongly: endpoint/,
      keys: /not accepted/,
      away: /ECONN/,
    }
    await describe('good', { endpoint, region, credentials: { folder } })
    await describe('wrong', { endpoint: 'nowhere', region, credentials: { folder } })
    await describe('keys', { endpoint, region, credentials: { secret: 'nobody' } })
    await describe('away', { endpoint: 'http://127.0.0.1:1', region, credentials: { folder } })
    for (const name of ['good', ...Object.keys(wrong)])
      ids[name] = await world.insert({ name: `in-${name}`, region: name })
    await world.untilPhase(ids['good']!, 'Created')
    for (const [name, reason] of Object.entries(wrong)) await expectWaiting(ids[name]!, reason)
    // A document never has keys in it: they would be everybody's who reads it.
    await describe('missing', { endpoint, region, credentials: keys('ours') })
    await replica.lifecycle.wake(ids['missing']!)
    await expectWaiting(ids['missing']!, /described wrongly: credentials: expected \{ env/)
    for (const name of Object.keys(wrong)) await describe(name, { endpoint, region, credentials: { secret: 'ours' } })
    for (const [name, id] of Object.entries(ids)) {
      await replica.lifecycle.wake(id)
      await world.untilPhase(id, 'Created')
      expect(await world.document(id)).toMatchObject({ bucket: `in-${name}`, storedIn: name })
      await world.write(id, { state: 'Deleted' })
      await world.untilPhase(id, undefined)
    }
  })

  test.each<[string, RequestListener, object]>([
    [
      'busy, and says for how long',
      (_request, response) => {
        response
          .writeHead(503, { 'retry-after': '7' })
          .end('<Error><Code>SlowDown</Code><Message>Reduce</Message></Error>')
      },
      { name: 'Unavailable', retryAfterMs: 7_000, reason: expect.stringContaining('Reduce') },
    ],
    ['broken', (_request, response) => void response.writeHead(502).end('<html>'), { name: 'Unavailable' }],
    ['silent', () => undefined, { name: 'Unavailable', reason: expect.stringContaining('no answer within 300 ms') }],
    ['refusing', (_request, response) => void response.writeHead(403).end(), { name: 'StorageForbidden' }],
  ])('is %s', async (kind, answer, error) => {
    const credentials = { accessKeyId: 'a', secretAccessKey: 'b' }
    const storages = new Storages({
      db: world.database.db,
      storage: { stub: { endpoint: await stub(answer), credentials } },
      requestTimeout: kind === 'silent' ? '300ms' : '1m',
    })
    const storage = await storages.of('stub')
    const step = { fence: 1, signal: new AbortController().signal, leaseLeftMs: () => 60_000 }
    const requests = new Requests(storage, 'any', {} as never, step)
    const { ListObjectVersionsCommand } = storage.sdk
    const asked = requests.read('s3:ListBucketVersions', new ListObjectVersionsCommand({ Bucket: 'any' }))
    const thrown = await asked.catch((reason: unknown) => reason)
    expect(thrown).toMatchObject(error)
    expect([Unavailable, StorageForbidden].some((type) => thrown instanceof type)).toBe(true)
  })
})
