import { connect } from 'node:net'
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { probeRoutes } from '../../src/cli/start/http/probes.js'
import { type HttpServer, serveRoutes } from '../../src/cli/start/http/server.js'
import { silentLogger } from '../../src/index.js'

const said: string[] = []
const logger = { ...silentLogger, error: (text: string) => void said.push(text) }
const settings = { http: 0, httpHost: '127.0.0.1' }

describe("the command line's web server", () => {
  let server: HttpServer
  let reasons: string[]
  beforeEach(async () => {
    reasons = []
    said.length = 0
    const probes = probeRoutes({ notReady: () => reasons, paused: () => [], problems: () => ['config: refused'] })
    const echo = {
      'GET /boom': () => Promise.reject(new Error('out of paper')),
      'POST /echo/:a/:b': async (request: { parameters: readonly string[]; json(): Promise<unknown> }) => ({
        status: 200,
        body: { parameters: request.parameters, body: await request.json() },
      }),
    }
    server = await serveRoutes({ ...probes, ...echo }, settings, logger)
  })
  afterEach(() => server.close())

  const get = async (path: string, init: RequestInit = {}) => {
    const response = await fetch(`${server.http}${path}`, init)
    const text = await response.text()
    return { status: response.status, headers: response.headers, body: text === '' ? undefined : JSON.parse(text) }
  }

  test('probes answer as those of a Nest app', async () => {
    const up = { replica: { status: 'up', problems: ['config: refused'] } }
    expect((await get('/livez')).body).toEqual({ status: 'ok', info: {}, error: {}, details: {} })
    expect((await get('/readyz')).body).toEqual({ status: 'ok', info: up, error: {}, details: up })
    reasons = ['starting']
    const down = { replica: { status: 'down', reasons: ['starting'], problems: ['config: refused'] } }
    expect(await get('/readyz')).toMatchObject({
      status: 503,
      body: { status: 'error', info: {}, error: down, details: down },
    })
  })

  test('metrics without prom-client: the npm line', async () => {
    expect(await get('/metrics')).toMatchObject({
      status: 501,
      body: { error: 'missingPackage', message: expect.stringContaining('npm install prom-client') },
    })
  })

  test('HEAD has the status and no content, and nothing is cached', async () => {
    const { status, headers, body } = await get('/readyz', { method: 'HEAD' })
    expect([status, headers.get('cache-control'), body]).toEqual([200, 'no-store', undefined])
  })

  test.each([
    ['nothing is there', '/nowhere', {}, 404, 'notFound', 'there is nothing at /nowhere'],
    ['another method', '/livez', { method: 'DELETE' }, 405, 'methodNotAllowed', 'expected GET, HEAD, got DELETE'],
    ['a bad escape', '/echo/%zz/b', { method: 'POST' }, 400, 'invalidRequest', 'expected a path in percent-encoding'],
    ['no JSON', '/echo/a/b', { method: 'POST', body: '{' }, 400, 'invalidRequest', 'expected a body in JSON'],
    ['too much', '/echo/a/b', { method: 'POST', body: 'x'.repeat(200_000) }, 413, 'tooLarge', 'at most 102400 bytes'],
  ] as const)('%s: refused with what was expected', async (_, path, init, status, error, message) => {
    const refused = await get(path, init)
    expect(refused).toMatchObject({ status, body: { statusCode: status, error } })
    expect(refused.body.message).toContain(message)
    expect(said).toEqual([])
  })

  test('parts of the path are decoded, prototype keys are only names', async () => {
    const sent = { method: 'POST', body: '{"__proto__":1}' }
    expect((await get('/echo/a%2Fb/__proto__/', sent)).body.parameters).toEqual(['a/b', '__proto__'])
    expect((await get('/__proto__')).status).toBe(404)
  })

  test('a fault is a 500 without its text, which the log has', async () => {
    expect(await get('/boom')).toMatchObject({ status: 500, body: { message: 'see the log of this process' } })
    expect(said).toEqual([expect.stringContaining('out of paper')])
  })

  test('what is no HTTP, and a client that goes away in the middle, harm nobody', async () => {
    const { port } = new URL(server.http)
    for (const text of ['nonsense\r\n\r\n', 'POST /echo/a/b HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{']) {
      const socket = connect(Number(port), '127.0.0.1')
      socket.on('error', () => undefined)
      await new Promise<void>((resolve) => socket.end(text, () => resolve()))
      socket.destroy()
    }
    expect((await get('/livez')).status).toBe(200)
    expect(said).toEqual([])
  })

  test('a port that is in use is named, with what to do', async () => {
    const { port } = new URL(server.http)
    await expect(serveRoutes({}, { ...settings, http: Number(port) }, logger)).rejects.toThrow(
      `expected to listen on 127.0.0.1:${port}, got a port that is in use; choose another --http port`,
    )
  })
})
