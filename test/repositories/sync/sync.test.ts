import { describe, expect, test } from '@jest/globals'
import { Unavailable } from 'phaselock'
import { AccessDenied, BadEmbeddings, CommitGone, chunksOf, EmbeddingsRefused } from 'phaselock-repositories'
import { pointsOf, useRepositories } from './support.js'

const { database, world, settled, created, synced } = useRepositories()

const text = (name: string, lines = 10) =>
  Array.from({ length: lines }, (_, i) => `${name} line ${i} of some text\n`).join('')
const chunksIn = (files: Readonly<Record<string, string>>) =>
  Object.values(files).reduce((sum, one) => sum + chunksOf(one, { characters: 100, overlap: 20 }).length, 0)

test('a repository is checked, gets its collection and its schedule, and is synced; a search finds lines and commit', async () => {
  const one = world()
  const files = { 'src/a.ts': text('alpha'), 'src/b.ts': text('beta'), 'README.md': 'read me\n', 'logo.png': 'PNG\0' }
  const commit = one.origin.commit(files)
  const sync = await created(one, { schedule: { dailyAt: '03:30', timezone: 'Asia/Seoul' }, exclude: ['*.md'] })
  const chunks = chunksIn({ a: files['src/a.ts'], b: files['src/b.ts'] })
  expect(sync).toMatchObject({
    status: 'completed',
    phase: 'Completed',
    head: { branch: 'main', commit },
    counters: { listed: 3, added: 3, changed: 0, deleted: 0, skipped: 1, chunks, embedded: chunks, reused: 0 },
    result: { commit, files: 3, chunks },
    startedAt: expect.any(Date),
    completedAt: expect.any(Date),
    durationSeconds: expect.any(Number),
  })
  const { repository, text: shown } = await one.repos.show('r')
  expect(repository).toMatchObject({ phase: 'Created', synced: { commit, collection: 'code', files: 3, chunks } })
  expect(shown).toMatch(new RegExp(`^in sync with ${commit.slice(0, 8)} since \\d+ s: 3 files, ${chunks} chunks$`))
  expect(await pointsOf(one.store)).toHaveLength(chunks)
  expect(await one.repos.schedules.get('repo_sync_r')).toMatchObject({
    cron: '30 3 * * *',
    timezone: 'Asia/Seoul',
    isActive: true,
    args: { repository: 'r' },
  })
  expect(
    (await one.repos.files('r')).map(({ path, chunks: count, lines, reason }) => [path, count, lines, reason]),
  ).toEqual([
    ['logo.png', 0, 0, 'binary'],
    ['src/a.ts', chunksIn({ a: files['src/a.ts'] }), 10, undefined],
    ['src/b.ts', chunksIn({ b: files['src/b.ts'] }), 10, undefined],
  ])
  const first = chunksOf(files['src/b.ts'], { characters: 100, overlap: 20 })[0]!
  const [best] = await one.repos.search(first.text, { repository: 'r', path: 'src' })
  expect(best).toMatchObject({ repository: 'r', path: 'src/b.ts', fromLine: 1, toLine: first.lines.to, commit })
  expect(best!.score).toBeCloseTo(1)
})

test('the same commit is one request; another one embeds what is new only', async () => {
  const one = world()
  const files = { a: text('alpha'), b: text('beta'), 'old/c': text('gamma') }
  one.origin.commit(files)
  await created(one)
  one.origin.calls = []
  expect(await synced(one)).toMatchObject({ status: 'completed', counters: { listed: 0, embedded: 0 } })
  expect(one.origin.calls).toEqual(['head'])

  const embedded = one.model.counts.embedded
  one.origin.commit({
    a: text('alpha'),
    b: `one line more\n${text('beta')}`,
    'new/c': text('gamma'),
    d: text('delta', 1),
  })
  const sync = await synced(one)
  expect(sync.counters).toMatchObject({ listed: 4, added: 1, changed: 1, renamed: 1, deleted: 0, unchanged: 1 })
  expect(sync.counters!.embedded).toBe(one.model.counts.embedded - embedded)
  expect(one.model.counts.embedded - embedded).toBeLessThan(chunksIn({ b: text('beta') }) + 2)
  expect((await pointsOf(one.store)).filter((point) => point.startsWith('old/'))).toEqual([])
  expect((await pointsOf(one.store)).filter((point) => point.startsWith('new/'))).toHaveLength(
    chunksIn({ c: text('gamma') }),
  )
  expect((await one.repos.files('r')).map(({ path }) => path)).toEqual(['a', 'b', 'd', 'new/c'])
})

describe('bad input', () => {
  test('a branch that is not there: the repository is parked with those that are, and goes on once it is changed', async () => {
    const one = world()
    one.origin.commit({ a: text('alpha') }, 'master')
    await one.repos.create('r', { url: 'https://git.example/a', collection: 'code' })
    await one.replica.runOnce()
    expect((await one.repos.show('r')).text).toBe('creating: memory: no branch "main"; there are: master')
    await one.repos.update('r', { branch: 'master' })
    expect(await settled(one, 'r')).toMatchObject({ status: 'completed', head: { branch: 'master' } })
  })

  test.each([
    [{ url: 'ext::sh -c x' }, 'remote helpers'],
    [{ url: '-x' }, "begins with '-'"],
    [{ schedule: { cron: '* * * * * *' } }, 'five fields'],
    [{ schedule: { cron: '99 * * * *' } }, 'schedule: '],
    [{ schedule: { every: '6h', dailyAt: '03:00' } }, 'expected one of'],
    [{ schedule: { dailyAt: '24:00' } }, "'03:00'"],
    [{ schedule: { every: '1s' } }, 'at least 1m'],
    [{ schedule: { every: '6h', timezone: 'UTC' } }, 'no timezone'],
    [{ branch: '--x' }, 'branch: '],
    [{ include: 'src' }, 'include: expected a list'],
    [{ encodings: ['utf-7'] }, 'encodings: '],
    [{ source: 'svn' }, "'git' or 'gitlab'"],
    [{ collection: '' }, 'collection: '],
    [{ brnch: 'x' }, "unknown field 'brnch'"],
  ])('%j is refused', async (fields, problem) => {
    const { repos } = world()
    await expect(repos.create('r', { url: 'https://a/b', collection: 'c', ...(fields as object) })).rejects.toThrow(
      problem,
    )
    await expect(repos.create('a/b', { url: 'https://a/b', collection: 'c' })).rejects.toThrow('_id: expected')
    await expect(repos.update('x', {})).rejects.toThrow("expected the repository 'x'")
  })

  test('a document that somebody wrote by hand is parked with its problems, and runs nothing', async () => {
    const one = world()
    await database.db
      .collection<{ _id: string }>('Repository')
      .insertOne({ _id: 'r', phase: 'Creating', url: 'ext::x', collection: 'code' } as never)
    await one.replica.runOnce()
    expect((await one.repos.show('r')).text).toMatch(/^creating: url: .*remote helpers/)
    expect(one.origin.calls).toEqual([])
  })

  test('access that is refused when a sync begins fails it, in words; one that ends in the middle waits', async () => {
    const one = world()
    one.origin.commit({ a: text('alpha') })
    await created(one)
    one.origin.before = () => {
      throw new AccessDenied('memory', 'GitLab 401 Unauthorized', 'the token needs read_repository')
    }
    expect(await synced(one)).toMatchObject({ status: 'failed', phase: 'Failed', error: { name: 'AccessDenied' } })
    expect((await one.repos.show('r')).text).toMatch(
      /^failed \d+ s ago: memory: GitLab 401 Unauthorized: the token needs read_repository$/,
    )
    const [run] = await one.repos.schedules.runs('repo_sync_r')
    expect(run).toMatchObject({ phase: 'Failed', error: { name: 'AccessDenied' } })

    one.origin.commit({ a: text('beta') })
    let refused = 2
    one.origin.before = (call) => {
      if (call === 'blobs' && refused-- > 0) throw new AccessDenied('memory', '401', 'x')
    }
    expect(await synced(one)).toMatchObject({ status: 'completed' })
    expect(refused).toBe(-1)
  })

  test('a source, a model and a store that are away for a while use no attempt', async () => {
    const away = { source: 2, model: 2 }
    const one = world()
    one.origin.before = () => {
      if (away.source-- > 0) throw new Unavailable('the source is away')
    }
    const embed = one.model.embeddings.embed
    Object.assign(one.model.embeddings, {
      embed: (...args: Parameters<typeof embed>) => {
        if (away.model-- > 0) throw new Unavailable('the model is away')
        return embed(...args)
      },
    })
    one.origin.commit({ a: text('alpha') })
    expect(await created(one)).toMatchObject({ status: 'completed' })
    expect(Object.values(away).every((left) => left < 0)).toBe(true)
  })

  test('a file that the model fails on is left out after three tries, with its reason; the next sync tries it again', async () => {
    const one = world()
    const embed = one.model.embeddings.embed
    let isBroken = true
    Object.assign(one.model.embeddings, {
      embed: async (...args: Parameters<typeof embed>) => {
        if (isBroken && args[0].some((part) => part.includes('poison')))
          throw new BadEmbeddings('count', 'expected finite numbers, got NaN')
        return embed(...args)
      },
    })
    one.origin.commit({ a: text('alpha'), bad: 'poison\n', c: text('gamma') })
    expect(await created(one)).toMatchObject({ status: 'completed', counters: { skipped: 1 } })
    const reasons = (await one.repos.files('r')).map(({ path, reason }) => [path, reason])
    expect(reasons).toEqual([
      ['a', undefined],
      ['bad', 'not embedded: embeddings of count: expected finite numbers, got NaN'],
      ['c', undefined],
    ])
    isBroken = false
    one.origin.commit({ a: text('alpha'), bad: 'poison\n', c: text('gamma'), d: 'x\n' })
    expect(await synced(one)).toMatchObject({ counters: { added: 1, changed: 1, skipped: 0 } })
  })
})

describe('what never ends well', () => {
  const embedding = (one: ReturnType<typeof world>, embed: () => never) =>
    Object.assign(one.model.embeddings, { embed })

  test('a step that fails again and again ends the sync, so that the next one begins', async () => {
    const one = world()
    let calls = 0
    one.origin.commit({ a: text('alpha') })
    embedding(one, () => {
      calls += 1
      throw new Error('a bug')
    })
    expect(await created(one)).toMatchObject({ status: 'failed', error: { name: 'Error', message: 'a bug' } })
    expect(calls).toBe(10)
  })

  test('a key that the model refuses fails the sync immediately; a text that it refuses is left out', async () => {
    const one = world()
    one.origin.commit({ a: text('alpha') })
    let status = 401
    embedding(one, () => {
      throw new EmbeddingsRefused('count', status, `${status} refused`)
    })
    expect(await created(one)).toMatchObject({ status: 'failed', error: { name: 'EmbeddingsRefused' } })
    status = 413
    expect(await synced(one)).toMatchObject({ status: 'completed', counters: { skipped: 1, chunks: 0 } })
  })

  test('a commit that is always gone fails the sync after some rounds', async () => {
    const one = world()
    one.origin.commit({ a: text('alpha') })
    one.origin.before = (call) => {
      if (call === 'blobs') throw new CommitGone('memory', 'c0ffee')
    }
    expect(await created(one)).toMatchObject({ status: 'failed', error: { name: 'CommitGone' }, rounds: 3 })
  })
})

describe('Checking', () => {
  test('a collection that somebody emptied or deleted is filled again, without the model', async () => {
    const one = world()
    const files = { a: text('alpha'), b: text('beta') }
    one.origin.commit(files)
    await created(one)
    const before = await pointsOf(one.store)
    await one.store.delete('code', { repository: 'r' }, { fence: Number.MAX_SAFE_INTEGER })
    const { embedded } = one.model.counts
    expect(await synced(one)).toMatchObject({ status: 'completed', counters: { mended: 2 } })
    expect(await pointsOf(one.store)).toEqual(before)
    await one.store.drop('code')
    expect(await synced(one)).toMatchObject({ status: 'completed', counters: { mended: 2 } })
    expect(await pointsOf(one.store)).toEqual(before)
    expect(one.model.counts.embedded).toBe(embedded)
  })

  test('a collection that is deleted while files are removed is filled again by the same sync', async () => {
    const one = world()
    one.origin.commit({ a: text('alpha'), b: text('beta') })
    await created(one)
    one.origin.commit({ a: text('alpha') })
    const remove = one.store.delete
    one.store.delete = async (...args) => {
      if (args[1].exceptIds === undefined) await one.store.drop('code')
      return remove.apply(one.store, args)
    }
    expect(await synced(one)).toMatchObject({ status: 'completed', counters: { deleted: 1, mended: 1 } })
    expect(await pointsOf(one.store)).toHaveLength(chunksIn({ a: text('alpha') }))
  })

  test('what a late writer has added is removed, and what is missing is written', async () => {
    const one = world()
    one.origin.commit({ a: text('alpha'), b: text('beta') })
    await created(one)
    const before = await pointsOf(one.store)
    const { points } = await one.store.scroll('code', { repository: 'r' })
    const late = points.slice(0, 2).map((point, i) => ({
      ...point,
      id: `00000000-0000-8000-8000-00000000000${i}`,
      path: i ? 'a' : 'gone',
      vector: new Float32Array(8),
    }))
    await one.store.upsert('code', late, { fence: 1 })
    expect(await synced(one)).toMatchObject({ status: 'completed', counters: { mended: 2 } })
    expect(await pointsOf(one.store)).toEqual(before)
  })

  test('records edited by hand are made right', async () => {
    const one = world()
    one.origin.commit({ a: text('alpha'), b: text('beta') })
    await created(one)
    const before = await pointsOf(one.store)
    const records = database.db.collection('repositories.files')
    await records.deleteOne({ path: 'a' })
    await records.updateOne({ path: 'b' }, { $set: { chunks: 77 } })
    expect(await synced(one)).toMatchObject({ status: 'completed' })
    expect(await pointsOf(one.store)).toEqual(before)
    expect((await one.repos.files('r')).map(({ path }) => path)).toEqual(['a', 'b'])
  })

  test('a store that keeps losing points fails the sync, and says the numbers', async () => {
    const one = world()
    const upsert = one.store.upsert
    one.origin.commit({ a: text('alpha') })
    one.store.upsert = (collection, points, options) => upsert.call(one.store, collection, points.slice(1), options)
    expect(await created(one)).toMatchObject({
      status: 'failed',
      error: { message: expect.stringMatching(/has \d+ points of it instead of \d+, after 3 rounds of mending/) },
    })
    expect((await one.repos.show('r')).repository.synced).toBeUndefined()
  })
})

test('a sync that ended half-way, and a force-push back: the commit alone does not count as in sync', async () => {
  const one = world()
  const files = Object.fromEntries(Array.from({ length: 250 }, (_, i) => [`f${i}`, `old ${i}\n`]))
  one.origin.commit(files)
  await created(one)
  const before = await pointsOf(one.store)
  one.origin.commit(Object.fromEntries(Object.keys(files).map((name) => [name, `new ${name}\n`])))
  let batches = 0
  one.origin.before = (call) => {
    if (call !== 'blobs' || ++batches < 2) return
    return one.repos.cancel('r').then(() => {
      throw new Unavailable('away')
    })
  }
  expect(await synced(one)).toMatchObject({ status: 'failed', error: { message: 'the sync was cancelled' } })
  expect(await pointsOf(one.store)).not.toEqual(before)
  one.origin.before = () => {}
  one.origin.commit(files)
  expect(await synced(one)).toMatchObject({ status: 'completed' })
  expect(await pointsOf(one.store)).toEqual(before)
})

test('another model: vectors are never mixed, searches go on in the old collection until the new one is complete', async () => {
  const one = world()
  one.origin.commit({ a: text('alpha') })
  await created(one)
  const other = world({
    store: one.store,
    sourceOf: () => one.origin.source(),
    embeddings: { ...one.model.embeddings, model: 'other' },
  })
  const sync = await synced(other)
  expect(sync).toMatchObject({
    status: 'completed',
    counters: { changed: 1 },
    collection: expect.stringMatching(/^code_[0-9a-f]{8}$/),
  })
  expect(await one.store.describe('code')).toMatchObject({ model: 'count' })
  expect(await one.store.describe(sync.collection!)).toMatchObject({ model: 'other' })
  expect(await pointsOf(one.store)).toEqual([])
  expect(await pointsOf(one.store, 'r', sync.collection)).toHaveLength(chunksIn({ a: text('alpha') }))
  expect(await other.repos.search('alpha', { limit: 1 })).toMatchObject([{ path: 'a' }])
})

test('another filter is a full comparison; a removed repository leaves nothing, and the others of its collection stay', async () => {
  const one = world()
  one.origin.commit({ a: text('alpha'), b: text('beta') })
  await created(one)
  await created(one, {}, 'other')
  const [first] = await one.repos.syncs('r')
  await one.repos.update('r', { exclude: ['b'] })
  for (let i = 0; (await one.repos.syncs('r'))[0]!._id === first!._id && i < 20; i += 1) await one.replica.runOnce()
  expect(await settled(one, 'r')).toMatchObject({ status: 'completed', counters: { deleted: 1, unchanged: 1 } })
  expect((await one.repos.files('r')).map(({ path }) => path)).toEqual(['a'])

  await one.repos.remove('r')
  for (let i = 0; i < 10; i += 1) await one.replica.runOnce()
  expect((await one.repos.show('r')).repository.phase).toBe('Deleted')
  expect(await pointsOf(one.store)).toEqual([])
  expect(await pointsOf(one.store, 'other')).toHaveLength(chunksIn({ a: text('alpha'), b: text('beta') }))
  expect(await one.repos.files('r')).toEqual([])
  expect(await one.repos.schedules.get('repo_sync_r')).toBeNull()
})
