import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import {
  embeddings,
  type OpenAiOptions,
  openAiEmbeddings,
} from '../../../packages/repositories/src/embeddings/index.js'
import { Unavailable } from '../../../src/index.js'

interface Request {
  readonly url: string
  readonly headers: IncomingHttpHeaders
  readonly body: { model: string; input: string[]; encoding_format: string; dimensions?: number }
}

const never = new AbortController().signal
let server: Server
let requests: Request[]
let answer: (request: Request, response: ServerResponse) => void
beforeEach(async () => {
  requests = []
  server = createServer(async (request, response) => {
    let text = ''
    for await (const part of request) text += part
    const seen = { url: request.url!, headers: request.headers, body: JSON.parse(text) }
    requests.push(seen)
    answer(seen, response)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
})
afterEach(() => {
  server.closeAllConnections()
  server.close()
})

const url = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`
const embedder = (more: Partial<OpenAiOptions> = {}) =>
  openAiEmbeddings({ url: url(), key: 'sk-secret', model: 'text-embedding-3-small', dimensions: 2, ...more })
const ask = (texts: string[], more: Partial<OpenAiOptions> = {}) =>
  embeddings(embedder(more)).embed(texts, { signal: never })
const json = (response: ServerResponse, body: unknown, status = 200, headers = {}) =>
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))

test('texts go out in batches with the key, and vectors come back by their index', async () => {
  answer = ({ body }, response) => {
    const data = body.input.map((text, index) => ({ object: 'embedding', index, embedding: [text.length, 0] }))
    json(response, { data: data.reverse() })
  }
  const { vectors } = await ask(['a', 'bb', 'ccc'], { batch: 2, url: `${url()}/` })
  expect(vectors.map((vector) => vector[0])).toEqual([1, 2, 3])
  expect(requests.map((request) => request.url)).toEqual(['/v1/embeddings', '/v1/embeddings'])
  expect(requests[0]!.headers.authorization).toBe('Bearer sk-secret')
  expect(requests.map(({ body }) => body)).toEqual([
    { model: 'text-embedding-3-small', input: ['a', 'bb'], encoding_format: 'float', dimensions: 2 },
    { model: 'text-embedding-3-small', input: ['ccc'], encoding_format: 'float', dimensions: 2 },
  ])
})

test('a size is asked for only of models that can shorten theirs, and known for OpenAI’s', async () => {
  answer = ({ body }, response) =>
    json(response, { data: body.input.map((_, index) => ({ index, embedding: [1, 0] })) })
  await ask(['a'], { model: 'BAAI/bge', key: undefined })
  expect(requests[0]).toMatchObject({ body: { model: 'BAAI/bge', input: ['a'], encoding_format: 'float' } })
  expect(requests[0]!.body).not.toHaveProperty('dimensions')
  expect(requests[0]!.headers.authorization).toBeUndefined()
  const large = openAiEmbeddings({ url: url(), model: 'text-embedding-3-large' })
  expect(large).toMatchObject({ dimensions: 3_072, window: 8_191 })
  expect(() => openAiEmbeddings({ url: url(), model: 'mine' })).toThrow(/expected `dimensions`.*mine/)
})

test.each<[string, Record<string, string>, number | undefined]>([
  ['429', { 'retry-after': '7' }, 7_000],
  ['429', {}, undefined],
  ['503', { 'retry-after': 'Thu, 26 Nov 2026 14:00:30 GMT', date: 'Thu, 26 Nov 2026 14:00:00 GMT' }, 30_000],
  ['503', { 'retry-after': 'soon' }, undefined],
  ['500', { 'retry-after': '999999999' }, 3_600_000],
  ['408', {}, undefined],
])('%s with %j makes the sync wait, after one request', async (status, headers, retryAfterMs) => {
  answer = (_, response) => json(response, { error: { message: 'Rate limit reached' } }, Number(status), headers)
  const error = await ask(['a']).catch((problem) => problem)
  expect(error).toBeInstanceOf(Unavailable)
  expect(error).toMatchObject({ retryAfterMs, reason: expect.stringContaining(`${status} Rate limit reached`) })
  expect(requests).toHaveLength(1)
})

test('a server that is away, and one that breaks off, make the sync wait', async () => {
  answer = (_, response) =>
    void response.writeHead(200, { 'content-length': '1000' }).write('{"data":', () => response.destroy())
  await expect(ask(['a'])).rejects.toThrow(Unavailable)
  const gone = embedder()
  server.closeAllConnections()
  server.close()
  await once(server, 'close')
  const error = await embeddings(gone)
    .embed(['a'], { signal: never })
    .catch((problem) => problem)
  expect(error).toBeInstanceOf(Unavailable)
  expect(error.message).toMatch(/ECONNREFUSED/)
})

test.each([400, 401, 403, 404, 413, 422])('%s is no reason to wait, and the key is in no error', async (status) => {
  answer = (_, response) => json(response, { error: { message: 'Incorrect API key provided: sk-secret' } }, status)
  const error = await ask(['a']).catch((problem) => problem)
  expect(error).toMatchObject({ name: 'EmbeddingsRefused', status })
  expect(error.message).toMatch(`${status} Incorrect API key provided: ***`)
  expect(JSON.stringify([error, String(error), error.stack])).not.toContain('sk-secret')
})

test('answers that are no vectors are refused with what came', async () => {
  const answers: [unknown, RegExp][] = [
    [{ data: [{ index: 0, embedding: [1, 1] }] }, /expected 2 vectors, got 1/],
    [{ data: [0, 0].map((index) => ({ index, embedding: [1, 1] })) }, /index/],
    [{ data: [0, 2].map((index) => ({ index, embedding: [1, 1] })) }, /index/],
    [{ data: [0, 1].map((index) => ({ index, embedding: [1, null] })) }, /expected finite numbers, got null/],
    [{ data: [{ index: 0 }, { index: 1 }] }, /index/],
    [{ object: 'list' }, /expected \{ data/],
  ]
  for (const [body, problem] of answers) {
    answer = (_, response) => json(response, body)
    await expect(ask(['a', 'b'])).rejects.toThrow(problem)
  }
  answer = (_, response) => void response.end('<html>')
  await expect(ask(['a'])).rejects.toMatchObject({ name: 'BadEmbeddings', problem: 'expected JSON, got <html>' })
})

test('a request that hangs ends with the signal', async () => {
  const closed = Promise.withResolvers<void>()
  answer = (_, response) => void response.on('close', () => closed.resolve())
  const asking = embeddings(embedder(), { timeout: '200ms' }).embed(['a'], { signal: never })
  await expect(asking).rejects.toMatchObject({ name: 'EmbeddingTimeout' })
  await closed.promise
})

test('texts aren’t sent where a redirect points, and no key is taken from a URL', async () => {
  answer = (_, response) => void response.writeHead(307, { location: 'http://127.0.0.1:1/' }).end()
  await expect(ask(['a'])).rejects.toThrow(/redirect/)
  expect(() => embedder({ url: 'https://me:secret@host/v1' })).toThrow(/give the key as `key`/)
  for (const bad of ['', 'host/v1', 'file:///etc', 'ftp://host'])
    expect(() => embedder({ url: bad })).toThrow(/url: expected/)
})
