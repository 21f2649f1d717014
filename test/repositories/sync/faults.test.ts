import { expect, test } from '@jest/globals'
import { Unavailable } from 'phaselock'
import { BadEmbeddings, embeddings, type Source } from 'phaselock-repositories'
import { hashedEmbedder } from '../hashed-embedder.js'
import { countingEmbeddings, pointsOf, useRepositories } from './support.js'

const { database, world, settled, created, synced } = useRepositories()

const filesOf = (name: string, count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`f${i}`, `${name} ${i}\n`]))

test.each(['f3', '.gitattributes'])(
  'a content that the source has no longer (%s) fails the sync; no points go',
  async (path) => {
    const one = world()
    one.origin.commit(filesOf('old', 5))
    const first = await created(one)
    const before = await pointsOf(one.store)
    one.origin.commit({ ...filesOf('old', 5), [path]: 'a new content\n' })
    one.origin.gone = 'a new content\n'
    expect(await synced(one)).toMatchObject({ status: 'failed', error: { name: 'CommitGone' }, rounds: 3 })
    expect(await pointsOf(one.store)).toEqual(before)
    expect((await one.repos.show('r')).repository.synced!.commit).toBe(first.head!.commit)
    one.origin.gone = undefined
    expect(await synced(one)).toMatchObject({ status: 'completed', counters: { skipped: 0 } })
  },
)

test('a model whose every answer is wrong fails the sync, and the points stay; it puts no file aside', async () => {
  const { embed } = hashedEmbedder()
  let wrong = 0
  const one = world({
    embeddings: embeddings(
      hashedEmbedder({
        embed: async (texts, options) =>
          (await embed(texts, options)).map((vector) => Float32Array.from(vector).slice(wrong)),
      }),
    ),
  })
  one.origin.commit(filesOf('old', 5))
  await created(one)
  const before = await pointsOf(one.store)
  const { synced: was } = (await one.repos.show('r')).repository
  wrong = 1
  one.origin.commit(filesOf('new', 5))
  expect(await synced(one)).toMatchObject({ status: 'failed', error: { name: 'BadEmbeddings' } })
  expect(await pointsOf(one.store)).toEqual(before)
  expect((await one.repos.show('r')).repository.synced).toEqual(was)
  wrong = 0
  expect(await synced(one)).toMatchObject({ status: 'completed', counters: { changed: 5, skipped: 0, embedded: 5 } })
})

test('files that the model failed on are tried again by the next sync, at the same commit', async () => {
  const one = world()
  const { embed } = one.model.embeddings
  let isBroken = true
  Object.assign(one.model.embeddings, {
    embed: async (...args: Parameters<typeof embed>) => {
      if (isBroken && args[0].some((part) => part.includes('poison'))) throw new BadEmbeddings('count', 'NaN')
      return embed(...args)
    },
  })
  one.origin.commit({ a: 'alpha\n', bad: 'poison\n' })
  expect(await created(one)).toMatchObject({ status: 'completed', counters: { skipped: 1 } })
  isBroken = false
  expect(await synced(one)).toMatchObject({ status: 'completed', counters: { changed: 1, skipped: 0, chunks: 1 } })
  expect(await pointsOf(one.store)).toHaveLength(2)
  // Now the same commit is one request again.
  one.origin.calls = []
  await synced(one)
  expect(one.origin.calls).toEqual(['head'])
})

test('an update of a repository that is parked by the update before is checked again', async () => {
  const one = world()
  one.origin.commit({ a: 'alpha\n' }, 'master')
  await created(one, { branch: 'master' })
  one.origin.commit({ a: 'beta\n' }, 'release')
  await one.repos.update('r', { branch: 'relaese' })
  await one.replica.runOnce()
  expect((await one.repos.show('r')).text).toMatch(/^updating: .*no branch "relaese"/)
  await one.repos.update('r', { branch: 'release' })
  const [before] = await one.repos.syncs('r')
  for (let i = 0; (await one.repos.syncs('r'))[0]!._id === before!._id && i < 20; i += 1) await one.replica.runOnce()
  expect(await settled(one, 'r')).toMatchObject({ status: 'completed', head: { branch: 'release' } })
  expect((await one.repos.show('r')).repository).toMatchObject({ phase: 'Created', synced: { branch: 'release' } })
})

test('a search compares no vectors of two models: it leaves out what is of the former one, in words', async () => {
  const old = world()
  old.origin.commit({ a: 'alpha\n' })
  await created(old)
  await created(old, { collection: 'more' }, 's')
  const model = countingEmbeddings()
  const embeddings = { ...model.embeddings, dimensions: 16 }
  embeddings.embed = async (...args) => {
    const made = await model.embeddings.embed(...args)
    return { ...made, vectors: made.vectors.map((vector) => Float32Array.from([...vector, ...vector])) }
  }
  const one = world({ store: old.store, sourceOf: () => old.origin.source(), embeddings })
  await expect(one.repos.search('alpha\n')).rejects.toThrow(
    'expected vectors of count with 16 dimensions; r, s: of another model until their next sync',
  )
  await expect(one.repos.search('alpha\n', { repository: 's' })).rejects.toThrow('; s: of another model')
  expect(await old.repos.search('alpha\n', { repository: 's' })).toHaveLength(1)
  await synced(one, 's')
  expect(await one.repos.search('alpha\n')).toMatchObject([{ repository: 's', path: 'a' }])
  expect(one.logger.lines.map(({ message }) => message)).toContain(
    'a search leaves repositories out: expected vectors of count with 16 dimensions; r: of another model until their next sync',
  )
  await synced(one, 'r')
  expect(await one.repos.search('alpha\n')).toHaveLength(2)
})

const syncs = () => database.db.collection('RepositorySync')

test('a step that always runs into its timeout ends the sync, and the next one begins', async () => {
  let isHanging = true
  const one = world({
    lockTimeout: '1s',
    sourceOf: () => {
      const source: Source = one.origin.source()
      const { blobs } = source
      source.blobs = async function* (head, ids, options) {
        if (isHanging)
          await new Promise((_, reject) => options.signal.addEventListener('abort', () => reject(new Unavailable('x'))))
        yield* blobs(head, ids, options)
      }
      return source
    },
  })
  const lifecycle = one.repos.lifecycles.find(({ model }) => model.name === 'repository-sync')!
  Object.assign(lifecycle.model.settings, { stepTimeoutMs: 50 })
  one.origin.commit({ a: 'alpha\n' })
  expect(await created(one)).toMatchObject({
    status: 'failed',
    error: { message: expect.stringContaining('step timeout') },
  })
  isHanging = false
  Object.assign(lifecycle.model.settings, { stepTimeoutMs: 60_000 })
  expect(await synced(one)).toMatchObject({ status: 'completed' })
}, 30_000)

test.each([
  ['claims', 'replicas in a row were lost while they worked on its step in Indexing'],
  ['attempts', 'errors in a row'],
])('a sync whose step has too many %s ends as Failed, and the next one begins', async (field, message) => {
  const one = world()
  one.origin.commit({ a: 'alpha\n' })
  let isFirst = true
  one.origin.before = async (call) => {
    if (call !== 'blobs') return
    if (!isFirst) throw new Error('its handler was called again')
    isFirst = false
    throw new Unavailable('away')
  }
  await one.repos.create('r', { url: 'https://git.example/a', collection: 'code' })
  for (let i = 0; isFirst && i < 20; i += 1) await one.replica.runOnce()
  await syncs().updateOne({ phase: 'Indexing' }, { $set: { [`progress.${field}`]: 10 } })
  expect(await settled(one, 'r')).toMatchObject({
    status: 'failed',
    error: { message: expect.stringContaining(message) },
  })
  one.origin.before = () => {}
  expect(await synced(one)).toMatchObject({ status: 'completed' })
})

test('points of the former model go with the next completion, if the store was away when they should have gone', async () => {
  const name = 'c'.repeat(60)
  const old = world()
  old.origin.commit({ a: 'alpha\n' })
  await created(old, { collection: name })
  const embeddings = { ...old.model.embeddings, model: 'other' }
  const one = world({ store: old.store, sourceOf: () => old.origin.source(), embeddings })
  const remove = one.store.delete
  let isAway = true
  one.store.delete = async (...args) => {
    const [collection, { paths }] = args
    if (isAway && collection === name && paths === undefined) {
      isAway = false
      throw new Unavailable('the store is away')
    }
    return remove.apply(one.store, args)
  }
  const sync = await synced(one)
  expect(sync).toMatchObject({ status: 'completed' })
  expect(isAway).toBe(false)
  // PostgreSQL cuts longer names.
  expect(sync.collection).toHaveLength(63)
  expect(await pointsOf(one.store, 'r', name)).toEqual([])
  expect(await pointsOf(one.store, 'r', sync.collection)).toHaveLength(1)
})

test('another maxFileBytes counts for a source whose listing has no sizes', async () => {
  const one = world()
  one.origin.hasSizes = false
  one.origin.commit({ a: 'alpha\n', large: 'x'.repeat(90) })
  await created(one, { maxFileBytes: 50 })
  expect((await one.repos.files('r')).map(({ reason }) => reason)).toEqual([undefined, 'too large'])
  const [before] = await one.repos.syncs('r')
  await one.repos.update('r', { maxFileBytes: 100 })
  for (let i = 0; (await one.repos.syncs('r'))[0]!._id === before!._id && i < 20; i += 1) await one.replica.runOnce()
  expect(await settled(one, 'r')).toMatchObject({ status: 'completed', counters: { skipped: 0 } })
  expect((await one.repos.files('r')).map(({ reason }) => reason)).toEqual([undefined, undefined])
})

test('an update during Checking counts in the sync that is open', async () => {
  const one = world()
  one.origin.commit({ a: 'alpha\n', b: 'beta\n' })
  const { count } = one.store
  let isFirst = true
  one.store.count = async (...args) => {
    if (isFirst) {
      isFirst = false
      await one.repos.update('r', { exclude: ['b'] })
    }
    return count.apply(one.store, args)
  }
  await one.repos.create('r', { url: 'https://git.example/a', collection: 'code' })
  await settled(one, 'r')
  expect((await one.repos.syncs('r')).at(-1)).toMatchObject({ status: 'completed', result: { files: 1 } })
})

test("an end drops a sync's plans, except that of a later holder", async () => {
  const one = world()
  one.origin.commit({ a: 'alpha\n' })
  const batches = database.db.collection<{ _id: string }>('repositories.batches')
  one.origin.before = async (call) => {
    if (call !== 'blobs') return
    const plan = (await batches.findOne({}))!
    await batches.insertOne({ ...plan, _id: 'later', fence: Number.MAX_SAFE_INTEGER } as never)
  }
  await created(one)
  expect((await batches.find().toArray()).map(({ _id }) => _id)).toEqual(['later'])
})

test('a repository that was removed takes no update, and is shown as removed; its syncs have an index', async () => {
  const one = world()
  one.origin.commit({ a: 'alpha\n' })
  await created(one)
  await one.repos.remove('r')
  await expect(one.repos.update('r', { exclude: ['b'] })).rejects.toThrow('repository r: it was removed')
  for (let i = 0; i < 10; i += 1) await one.replica.runOnce()
  expect(await one.repos.show('r')).toMatchObject({ repository: { phase: 'Deleted' }, text: 'removed' })
  await expect(one.repos.update('r', { exclude: ['b'] })).rejects.toThrow('repository r: it was removed')
  expect((await syncs().indexes()).map(({ key }) => key)).toContainEqual({ repository: 1, createdAt: -1 })
})
