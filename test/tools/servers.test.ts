import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEach, expect, jest, test } from '@jest/globals'
import { Redis } from 'ioredis'
import pg from 'pg'
import { startPostgres } from '../../tools/servers/postgres.mjs'
import { startRedis } from '../../tools/servers/redis.mjs'
import { ServerMissing } from '../../tools/servers/server-missing.mjs'
import type { ThrowawayServer } from '../../tools/servers/throwaway.mjs'
import { eventually } from '../support/database.js'
import { isAlive } from '../support/database-local.js'

jest.setTimeout(240_000)

const started: (ThrowawayServer | ChildProcess)[] = []
afterEach(async () => {
  for (const one of started.splice(0)) await ('stop' in one ? one.stop() : one.kill('SIGKILL'))
})

/** Runs the test with the server; where its program isn't installed it says so and passes, but not in CI. */
async function withServer<S extends ThrowawayServer>(start: () => Promise<S>, body: (server: S) => Promise<void>) {
  const server = await start().catch((error) => {
    if (!(error instanceof ServerMissing) || process.env['CI']) throw error
    process.stderr.write(`skipped: ${error.message}\n`)
    return undefined
  })
  if (!server) return
  started.push(server)
  await body(server)
}

async function query(url: string, text: string): Promise<unknown[]> {
  const client = new pg.Client(url)
  client.on('error', () => undefined)
  await client.connect()
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

test('PostgreSQL: commits to disk, survives kill -9 on the same port, goes with its folder', () =>
  withServer(startPostgres, async (server) => {
    await query(server.url, 'create table thing (a int)')
    await query(server.url, 'insert into thing values (1)')
    await server.kill9()
    expect(server.pid).toBeUndefined()
    await expect(query(server.url, 'select 1')).rejects.toThrow()
    await server.restart()
    expect(await query(server.url, 'select a, current_setting($$fsync$$) as fsync from thing')).toEqual([
      { a: 1, fsync: 'on' },
    ])
    const pid = server.pid!
    await server.stop()
    expect(isAlive(pid)).toBe(false)
    expect(existsSync(server.folder)).toBe(false)
    await expect(server.restart()).rejects.toThrow('start another one')
  }))

test('Redis: keeps what it has answered over kill -9', () =>
  withServer(startRedis, async (server) => {
    const client = new Redis(server.url)
    try {
      client.on('error', () => undefined)
      await client.set('a', 'kept')
      await server.kill9()
      await server.restart()
      expect(await client.get('a')).toBe('kept')
    } finally {
      client.disconnect()
    }
  }))

test('a setting that does not exist is an error with the log, not a hanging start', () =>
  withServer(startRedis, async () => {
    await expect(startRedis({ settings: { 'no-such-setting': 1 } })).rejects.toMatchObject({
      name: 'ServerFailed',
      log: expect.stringContaining('no-such-setting'),
    })
  }))

test('a program that is not there: the error names the package', async () => {
  const path = process.env['PATH']
  process.env['PATH'] = '/nonexistent'
  try {
    await expect(startRedis()).rejects.toMatchObject({ name: 'ServerMissing', debianPackage: 'redis-server' })
  } finally {
    process.env['PATH'] = path
  }
})

test('the server and its folder go when the process that started it is killed', () =>
  withServer(startRedis, async () => {
    const module = fileURLToPath(new URL('../../tools/servers/redis.mjs', import.meta.url))
    const program = `
      const { startRedis } = await import(${JSON.stringify(module)})
      const { pid, folder } = await startRedis()
      console.log(JSON.stringify({ pid, folder }))
      setInterval(() => {}, 1000)`
    const parent = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    started.push(parent)
    const [line] = await once(createInterface({ input: parent.stdout! }), 'line')
    const { folder } = JSON.parse(String(line))
    expect(existsSync(folder)).toBe(true)
    parent.kill('SIGKILL')
    await eventually(() => expect(existsSync(folder)).toBe(false), { timeoutMs: 60_000 })
  }))
