import { PassThrough, Readable } from 'node:stream'
import { describe, expect, jest, test } from '@jest/globals'
import { Redis } from 'ioredis'
import { BSON } from 'mongodb'
import { Output } from '../../src/cli/output.js'
import { runCli } from '../../src/cli/run.js'
import { mongoLockProvider } from '../../src/locks/index.js'
import { startRedis } from '../../tools/servers/redis.mjs'
import { useDatabase } from '../support/database.js'
import { useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

const AGO = /^\d+ m?s ago$|^in \d+ ms$/
const AHEAD = /^in (1 h|\d+ min)$/

describe('phaselock locks', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  /** In this process: a dozen of their own would take their time. Log lines go past it. */
  const run = async (args: readonly string[], stdin = '', env: Record<string, string> = {}) => {
    const [out, err] = [new PassThrough(), new PassThrough()]
    const context = { env: { MONGODB_URI: database.uri, ...env }, stdin: Readable.from([stdin]), cwd: folder().path }
    const code = await runCli(['locks', ...args], { ...context, output: new Output(out, err) })
    const [printed, problems] = [out.end(), err.end()].map((stream) => String((stream as PassThrough).read() ?? ''))
    return { code, out: printed!, err: problems!, json: () => BSON.EJSON.parse(printed!) as unknown }
  }

  test('shows who has what, and frees one: asked for, or with --yes; the log says who did', async () => {
    expect((await run([])).out).toBe('no locks are held in mongodb\n')
    const locks = mongoLockProvider(database.db, { name: 'api-1' })
    const held = (await locks.lock({ name: 'nightly', lockAtMostFor: '1h' }))!
    const early = (await locks.lock({ name: 'quick', lockAtMostFor: '1h', lockAtLeastFor: '1h' }))!
    await early.unlock()
    await (await locks.lock({ name: 'free', lockAtMostFor: '1h' }))!.unlock()

    const [head, ...rows] = (await run([])).out.trim().split('\n')
    expect(head).toMatch(/^NAME {5}HOLDER +SINCE +UNTIL +FENCE$/)
    expect(rows.map((row) => row.split(/ {2,}/))).toEqual([
      ['nightly', held.lockedBy, expect.stringMatching(AGO), expect.stringMatching(AHEAD), String(held.fence)],
      ['quick', `${early.lockedBy} (released)`, expect.stringMatching(AGO), expect.any(String), String(early.fence)],
    ])
    const all = (await run(['--all', '--json'])).json() as { name: string; held: boolean }[]
    expect(all.map(({ name, held: isHeld }) => [name, isHeld])).toEqual([
      ['free', false],
      ['nightly', true],
      ['quick', true],
    ])

    for (const answer of ['', 'n\n']) {
      const refused = await run(['release', 'nightly'], answer)
      expect(refused).toMatchObject({ code: 2, out: '' })
      expect(refused.err).toMatch(/free 'nightly', which api-1~.* holds until .*\? \[y\/N\]\n.*nothing was freed/s)
    }
    const release = ['locks', 'release', 'nightly', '--by', 'alice', '--log', 'json']
    const freed = await folder().run(release, { MONGODB_URI: database.uri }, 'yes\n')
    expect(freed).toMatchObject({ code: 0, out: expect.stringMatching(/^nightly: freed; api-1~/) })
    expect(freed.err).toContain(`"lock":"nightly","heldBy":"${held.lockedBy}","fence":${held.fence},"by":"alice"`)
    expect(await held.extend('1h')).toBeUndefined()

    expect((await run(['release', 'quick', '--yes', '--json'])).json()).toMatchObject({ released: { name: 'quick' } })
    expect(await run(['release', 'nightly', '--yes'])).toMatchObject({
      code: 3,
      err: "phaselock: nobody holds the lock 'nightly' in mongodb; see: phaselock locks --all\n",
    })
  })

  test('of another server, by its URL; a server that is down and locks nobody can see are told', async () => {
    const server = await startRedis({ persistence: 'none' })
    try {
      const client = new Redis(server.url)
      await client.set('jobs:test:ours', 'ADDED:2026-11-21T06:00:00.000Z@java-1:42f0', 'PX', 3_600_000)
      client.disconnect()
      const env = { PHASELOCK_LOCKS_URL: server.url }
      const listed = await run(['--prefix', 'jobs', '--environment', 'test', '--json'], '', env)
      expect(listed.json()).toMatchObject([{ name: 'ours', lockedBy: 'java-1:42f0', fence: null, held: true }])
      await server.stop()
      expect(await run([], '', env)).toMatchObject({
        code: 1,
        err: expect.stringMatching(/^phaselock: expected the redis lock provider to list its locks, got: /),
      })
    } finally {
      await server.stop()
    }
    expect(await run([], '', { PHASELOCK_LOCKS: 'memory' })).toMatchObject({
      code: 2,
      err: expect.stringMatching(/locks in memory are visible only to their own process/),
    })
    // Nothing of this asks for MongoDB.
    for (const kind of ['redis', 'redis-quorum', 'mysql', 'postgres'])
      expect(await run(['--locks', kind], '', { MONGODB_URI: '' })).toMatchObject({
        code: 2,
        err: expect.stringMatching(/set PHASELOCK_LOCKS_URL to (redis|mysql|postgres):\/\//),
      })
    expect((await run(['migrate'])).out).toBe('locks in mongodb have everything they need\n')
  })
})
