import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import { QdrantClient } from '@qdrant/js-client-rest'
import { qdrant, type VectorStore, VectorStoreUnavailable } from '../../../packages/repositories/src/vectors/index.js'
import { type Duration, Unavailable } from '../../../src/index.js'
import { installQdrant, type QdrantServer, startQdrant } from '../../../tools/servers/qdrant.mjs'
import { ServerMissing } from '../../../tools/servers/server-missing.mjs'
import { eventually } from '../../support/database.js'
import { describeWith } from '../../support/describe-with.js'
import { point, SPEC } from './conformance.js'

const clientOf = (url: string) => new QdrantClient({ url, checkCompatibility: false })

const describeEngine = await describeWith("Qdrant's engine", installQdrant, ServerMissing)
describeEngine('Qdrant’s engine', () => {
  let server: QdrantServer
  let client: QdrantClient
  let store: VectorStore
  beforeAll(async () => {
    server = await startQdrant()
    client = clientOf(server.url)
    store = qdrant(client)
  }, 240_000)
  afterAll(async () => await server?.stop())

  test('killed with kill -9 while several write, it has every point that was acknowledged when it is back', async () => {
    await store.create('killed', SPEC)
    const acknowledged: string[] = []
    const writer = async (name: number) => {
      for (let round = 0; ; round += 1) {
        const points = Array.from({ length: 20 }, (_, i) => point(`${name}/${round}/${i}.ts`))
        await store.upsert('killed', points, { fence: 1 })
        acknowledged.push(...points.map(({ id }) => id))
      }
    }
    const writing = [0, 1, 2].map((name) => writer(name).catch((error) => error))
    await eventually(() => acknowledged.length >= 300)
    await server.kill9()
    for (const error of await Promise.all(writing)) expect(error).toBeInstanceOf(VectorStoreUnavailable)
    await server.restart()
    expect(await store.describe('killed')).toEqual(SPEC)
    expect(await store.count('killed', { ids: acknowledged })).toBe(acknowledged.length)
    await store.upsert('killed', [point('0/0/0.ts', [0, 1, 0, 0], { blob: 'late' })], { fence: 0 })
    expect((await store.query('killed', [0, 1, 0, 0], { limit: 1 }))[0]!.score).toBe(0)
  })

  test('a collection of another program is left alone', async () => {
    await client.createCollection('theirs', { vectors: { size: 4, distance: 'Cosine' } })
    await client.upsert('theirs', { points: [{ id: 1, vector: [1, 0, 0, 0] }] })
    const before = await client.getCollection('theirs')
    const refused = { name: 'NotOurCollection', message: expect.stringMatching(/another collection/) }
    await expect(store.create('theirs', SPEC)).rejects.toMatchObject(refused)
    await expect(store.describe('theirs')).rejects.toMatchObject(refused)
    expect(await client.getCollection('theirs')).toEqual(before)
  })

  test('a collection of which only a part was made is completed', async () => {
    await client.createCollection('part', {
      vectors: { size: 4, distance: 'Cosine' },
      metadata: { 'phaselock-repositories': SPEC },
    })
    await store.create('part', SPEC)
    const { payload_schema } = await client.getCollection('part')
    expect(Object.keys(payload_schema).sort()).toEqual(['fence', 'folders', 'path', 'repository'])
  })
})

describe('a Qdrant that', () => {
  const servers: Server[] = []
  const end = () => {
    for (const server of servers.splice(0)) {
      server.closeAllConnections()
      server.close()
    }
  }
  afterEach(end)
  async function answering(listener: RequestListener, answerWithin: Duration = '30s'): Promise<VectorStore> {
    const server = createServer(listener).listen(0, '127.0.0.1')
    servers.push(server)
    await once(server, 'listening')
    return qdrant(clientOf(`http://127.0.0.1:${(server.address() as AddressInfo).port}`), { answerWithin })
  }
  const saying = (status: number, words: string, headers = {}) =>
    answering((_, response) =>
      response
        .writeHead(status, { 'content-type': 'application/json', ...headers })
        .end(JSON.stringify({ status: { error: words }, time: 0, result: null })),
    )

  test('is away, overloaded or shutting down makes the sync wait', async () => {
    for (const status of [408, 429, 500, 502, 503]) {
      const store = await saying(status, 'busy')
      const error = await store.count('code').catch((problem) => problem)
      expect(error).toBeInstanceOf(Unavailable)
      expect(error.message).toBe(`the vector store (qdrant) can't be reached: ${status} busy`)
    }
    const limited = await saying(429, 'Rate limiting exceeded', { 'retry-after': '7' })
    await expect(limited.count('code')).rejects.toMatchObject({ retryAfterMs: 7_000 })
    end()
    await expect(limited.upsert('code', [point('a')], { fence: 1 })).rejects.toThrow(/ECONNREFUSED/)
    await expect(limited.upsert('code', [point('a')], { fence: 1 })).rejects.toThrow(Unavailable)
  })

  test('gives no answer is waited for as long as was said', async () => {
    const store = await answering(() => undefined, '300ms')
    await expect(store.count('code')).rejects.toThrow(/no answer within 300ms/)
    await expect(store.create('code', SPEC)).rejects.toThrow(Unavailable)
  })

  test('refuses the key, or a request, says so and isn’t waited for', async () => {
    const forbidden = await (await saying(403, 'Forbidden')).count('code').catch((problem) => problem)
    expect(forbidden).not.toBeInstanceOf(Unavailable)
    expect(forbidden).toMatchObject({
      name: 'VectorStoreRefused',
      message: expect.stringMatching(/403 Forbidden; give/),
    })
    await expect((await saying(400, 'Bad filter')).count('code')).rejects.toThrow(/refuses a call: 400 Bad filter/)
  })

  test('is older than 1.16, and keeps no metadata, is refused: it would ignore the condition of an upsert', async () => {
    let isThere = false
    const store = await answering((request, response) => {
      if (request.method === 'PUT') isThere = true
      response
        .writeHead(isThere ? 200 : 404, { 'content-type': 'application/json' })
        .end(JSON.stringify({ status: 'ok', result: request.method === 'PUT' ? true : { config: {} } }))
    })
    await expect(store.create('code', SPEC)).rejects.toThrow(/Qdrant below 1\.16 keeps none/)
  })
})
