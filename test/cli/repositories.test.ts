import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PassThrough, Readable } from 'node:stream'
import { describe, expect, test } from '@jest/globals'
import { Unavailable } from 'phaselock'
import { Output } from '../../src/cli/output.js'
import { runCli } from '../../src/cli/run.js'
import { useRepositories } from '../repositories/sync/support.js'
import { useCliFolder } from './cli-process.js'

describe('phaselock repositories', () => {
  const { database, world, created, settled } = useRepositories()
  const folder = useCliFolder()
  const run = async (...args: string[]) => {
    const [out, err] = [new PassThrough(), new PassThrough()]
    const context = { env: { MONGODB_URI: database.uri }, stdin: Readable.from(['']), cwd: folder().path }
    const code = await runCli(args, { ...context, output: new Output(out, err) })
    const [printed, problems] = [out.end(), err.end()].map((stream) => String((stream as PassThrough).read() ?? ''))
    return { code, out: printed!, err: problems! }
  }

  test('lists repositories, shows one with its syncs, and asks for a sync', async () => {
    expect((await run('repositories')).out).toMatch(/^there are no repositories/)
    const one = world()
    const commit = one.origin.commit({ a: 'alpha\n', b: 'beta\n' })
    await created(one, { exclude: ['*.md'] })
    const [head, row] = (await run('repositories')).out.trim().split('\n')
    expect(head).toMatch(/^REPOSITORY +BRANCH +CONDITION$/)
    expect(row).toMatch(new RegExp(`^r +main +in sync with ${commit.slice(0, 8)} since \\d+ s: 2 files, 2 chunks$`))

    const asked = await run('repositories', 'sync', 'r', '--by', 'anna')
    expect(asked.out).toMatch(/^asked for repo_sync_r@/)
    const id = asked.out.trim().split(' ').at(-1)!
    expect(await settled(one, 'r', id)).toMatchObject({ status: 'completed' })
    expect((await run('audit', '--json')).out).toContain('"action":"repositories sync"')

    one.origin.branches.clear()
    await settled(one, 'r', await one.repos.sync('r'))
    const shown = (await run('repositories', 'show', 'r')).out
    expect(shown).toMatch(/^STARTED +STATUS +SECONDS/)
    expect(shown).toContain('exclude: *.md')
    expect(shown).toMatch(/r: failed \d+ s ago: memory: no branch "main"; it has none/)
    expect((await run('check')).out).toMatch(/repository r: failed \d+ s ago: memory: no branch "main"/)
  })

  test('shows how far a sync is while it runs, and by which replica; rate and time left', async () => {
    const { db } = database
    const common = { url: 'https://git.example/a', collection: 'code', phase: 'Created' }
    await db.collection<{ _id: string }>('Repository').insertMany([
      { ...common, _id: 'r' },
      { ...common, _id: 's' },
    ] as never[])
    const sync = { phase: 'Indexing', status: 'running', filesIndexed: 412, filesToIndex: 2_000 }
    await db.collection<{ _id: string }>('RepositorySync').insertMany([
      { ...sync, _id: 'a', repository: 'r', lockedBy: 'api-2~7939d7#20.1' },
      { ...sync, _id: 'b', repository: 's', phase: 'Listing', progress: { waitingFor: 'a slot of embeddings' } },
    ] as never[])
    // By the server's clock, as the replicas write it.
    const ago = { $subtract: ['$$NOW', 9_000] }
    await db
      .collection('RepositorySync')
      .updateMany({}, [{ $set: { createdAt: ago, startedAt: ago, 'progress.since': ago } }])
    const [, running, waiting] = (await run('repositories')).out.trim().split('\n')
    expect(running).toMatch(/^r +\(default\) +syncing 412 of 2,000 files for \d+ s by api-2$/)
    expect(waiting).toMatch(/^s +\(default\) +syncing for \d+ s, waits: a slot of embeddings$/)
    const { sync: shown } = JSON.parse((await run('repositories', '--json')).out)[0]
    const { filesPerSecond, secondsLeft } = shown
    expect(filesPerSecond).toBeLessThanOrEqual(412 / 9)
    expect(filesPerSecond * secondsLeft).toBeCloseTo(2_000 - 412)
    expect((await run('repositories', 'show', 'r')).out).toMatch(/ \d+\.\d files\/s, \d+ s left /)
  })

  test('reports a repository without a success for twice its interval', async () => {
    const one = world()
    one.origin.commit({ a: 'alpha\n' })
    await created(one, { schedule: { every: '6h' } })
    expect((await run('check')).out).not.toContain('repository r')
    await database.db
      .collection('Repository')
      .updateOne({}, [{ $set: { 'synced.at': { $subtract: ['$$NOW', 13 * 3_600_000] } } }])
    expect((await run('check')).out).toContain('no sync has succeeded for 13.0 h, more than twice its interval')
  })

  test('reports a repository that never had a success, once twice its interval is over', async () => {
    const one = world()
    one.origin.before = (call) => {
      if (call === 'tree') throw new Unavailable('away')
    }
    one.origin.commit({ a: 'alpha\n' })
    await one.repos.create('r', { url: 'https://git.example/a', collection: 'code', schedule: { every: '6h' } })
    for (let i = 0; i < 5; i += 1) await one.replica.runOnce()
    expect((await run('check')).out).not.toContain('no sync has succeeded')
    await database.db
      .collection('Repository')
      .updateOne({}, [{ $set: { createdAt: { $subtract: ['$$NOW', 13 * 3_600_000] } } }])
    expect((await run('check')).out).toContain('no sync has succeeded for 13.0 h, more than twice its interval')
  })

  test('searches with the model and the store of the app', async () => {
    const app = join(folder().path, 'app.mjs')
    await writeFile(
      app,
      `export const repositories = ({ db }) => ({
        search: async (question, options) => [
          { repository: db.databaseName.slice(0, 2), path: question, fromLine: 1, toLine: options.limit, commit: 'c0ffee00aa', score: 0.5, text: '' },
        ],
      })`,
    )
    const found = await run('repositories', 'search', 'where?', '--app', app, '--limit', '7')
    expect(found.out.trim().split('\n').at(-1)).toMatch(/^t_ +where\?:1-7 +c0ffee00 +0\.500$/)
    expect(await run('repositories', 'search', 'where?')).toMatchObject({
      code: 2,
      err: expect.stringContaining('--app'),
    })
    expect(await run('repositories', 'search', 'x', '--app', app, '--limit', '0')).toMatchObject({ code: 2 })
  })

  test.each([['show'], ['sync']])('%s of a repository that is not there', async (name) => {
    expect(await run('repositories', name, 'x')).toMatchObject({
      code: 3,
      err: expect.stringContaining("no repository 'x'"),
    })
  })
})
