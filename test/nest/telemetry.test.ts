import 'reflect-metadata'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, test } from '@jest/globals'
import type { INestApplication } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { Registry } from 'prom-client'
import { MissingPackage, requirePackages } from '../../src/config/index.js'
import { loadTelemetryHttp } from '../../src/nest/index.js'

describe('/livez, /readyz, /metrics', () => {
  let app: INestApplication | undefined
  afterEach(() => app?.close())

  async function get(path: string, notReady: readonly string[] = []) {
    const { TelemetryHttpModule } = await loadTelemetryHttp()
    const module = TelemetryHttpModule.forRoot({ registry: new Registry(), notReady: () => notReady })
    app = await NestFactory.create(module, { logger: false })
    await app.listen(0, '127.0.0.1')
    const { port } = app.getHttpServer().address() as AddressInfo
    return fetch(`http://127.0.0.1:${port}${path}`)
  }

  test('a replica that is ready', async () => {
    const response = await get('/readyz')
    expect(response.status).toBe(200)
    expect(await response.json()).toMatchObject({ status: 'ok', info: { replica: { status: 'up' } } })
  })

  test('one that is not: 503 with the reasons; it is alive all the same', async () => {
    const response = await get('/readyz', ['the database does not answer', 'stopping'])
    expect(response.status).toBe(503)
    expect(await response.json()).toMatchObject({
      status: 'error',
      error: { replica: { status: 'down', reasons: ['the database does not answer', 'stopping'] } },
    })
    await app?.close()
    expect((await get('/livez', ['stopping'])).status).toBe(200)
  })

  test('metrics in the text format of Prometheus', async () => {
    const response = await get('/metrics')
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/)
  })

  test('without what it is to show there is none', async () => {
    const { TelemetryHttpModule } = await loadTelemetryHttp()
    expect(() => TelemetryHttpModule.forRoot({ registry: {} } as never)).toThrow(
      'TelemetryHttpModule.forRoot: registry: expected a registry of prom-client, got an object with nothing',
    )
    expect(() => TelemetryHttpModule.forRoot(undefined as never)).toThrow('expected an object, got undefined')
  })

  test('a package that is not installed: the npm line to run', () => {
    const missing = () => requirePackages('the web server (--http)', ['@nestjs/core', '@nestjs/terminus'], () => false)
    expect(missing).toThrow(MissingPackage)
    expect(missing).toThrow(/run: npm install @nestjs\/core @nestjs\/terminus$/)
    expect(() => requirePackages('x', ['@nestjs/common', 'no-such-package-there'])).toThrow(
      /needs no-such-package-there,/,
    )
  })
})
