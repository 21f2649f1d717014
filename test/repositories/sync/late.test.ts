import { expect, test } from '@jest/globals'
import { memory } from 'phaselock-repositories'
import { gate } from '../../support/thing.js'
import { countingEmbeddings, pointsOf, truthOf, useRepositories } from './support.js'

const { database, world, settled, created, synced } = useRepositories()

const filesOf = (name: string, count = 450) =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`f${i}`, `${name} ${i}\n`]))
const syncs = () => database.db.collection<{ _id: string; next?: number }>('RepositorySync')

/** Two replicas on one store; the first one stops in the model at a batch, as if its process was paused. */
function paused(atBatch: number) {
  const began = gate()
  const go = gate()
  let calls = 0
  const model = countingEmbeddings()
  const embed = model.embeddings.embed
  const slow = {
    ...model.embeddings,
    embed: async (...args: Parameters<typeof embed>) => {
      calls += 1
      if (calls === atBatch) {
        began.open()
        await go.wait
      }
      return embed(...args)
    },
  }
  const store = memory()
  const first = world({ store, embeddings: slow })
  const second = world({ store, embeddings: model.embeddings, sourceOf: () => first.origin.source() })
  /** Ends the lease of the first one. */
  const expire = () =>
    syncs().updateMany({ lockedBy: { $exists: true } } as object, { $set: { lockedAt: new Date(0) } as object })
  /** Begins the sync's steps on the first one; resolves when it has stopped in the model, with the promise of their end. */
  const stalled = async () => {
    const running = (async () => {
      for (let i = 0; i < 5; i += 1) await first.replica.runOnce()
    })()
    await Promise.race([began.wait, running])
    return { running }
  }
  return { store, first, second, go, stalled, expire, model }
}

test('a replica that was paused past its lease: another one goes on at its batch, and its late writes change nothing', async () => {
  const { store, first, second, go, stalled, expire } = paused(2)
  const files = filesOf('text')
  first.origin.commit(files)
  await first.repos.create('r', { url: 'https://git.example/a', collection: 'code' })
  // The first sync begins after some ticks, which the paused step doesn't let end.
  const { running } = await stalled()
  expect(await syncs().findOne({})).toMatchObject({ next: 1, toIndex: 3 })
  expect((await first.repos.show('r')).text).toMatch(/^syncing 200 of 450 files for \d+ s by /)
  await expire()
  first.origin.calls = []
  const sync = await settled(second, 'r')
  expect(sync).toMatchObject({ status: 'completed', filesIndexed: 450, result: { files: 450 } })
  // It has neither listed again nor read the first batch again.
  expect(first.origin.calls).toEqual(['blobs', 'blobs'])
  const records = await second.repos.files('r')
  go.open()
  await running
  expect(await pointsOf(store)).toEqual(truthOf(files))
  expect(await second.repos.files('r')).toEqual(records)
  expect(await syncs().findOne({})).toMatchObject({ phase: 'Completed', filesIndexed: 450 })
})

test('what a paused replica adds anew after a later commit was synced, the next Checking removes', async () => {
  const { store, first, second, go, stalled, expire } = paused(2)
  first.origin.commit(filesOf('old', 10))
  await created(first)
  const middle = filesOf('middle', 10)
  first.origin.commit(middle)
  await first.repos.sync('r')
  // The second call of the model: that of the commit in the middle.
  const { running } = await stalled()
  await expire()
  await settled(second, 'r')
  const files = { ...filesOf('new', 5), more: 'more\n' }
  first.origin.commit(files)
  await synced(second)
  expect(await pointsOf(store)).toEqual(truthOf(files))
  go.open()
  await running
  // Five files have a point too many; five that are gone have points and records again.
  expect((await second.repos.files('r')).length).toBe(11)
  expect(await synced(second)).toMatchObject({ status: 'completed', counters: { mended: 5, deleted: 0 } })
  expect(await pointsOf(store)).toEqual(truthOf(files))
  expect((await second.repos.files('r')).map(({ path }) => path)).toEqual(['f0', 'f1', 'f2', 'f3', 'f4', 'more'])
})

test('points and records of files that are gone, written by a replica that was paused, do not pass as in sync', async () => {
  const { store, first, second, go, stalled, expire } = paused(2)
  first.origin.commit(filesOf('old', 3))
  await created(first)
  first.origin.commit({ ...filesOf('old', 3), late1: 'late 1\n', late2: 'late 2\n' })
  await first.repos.sync('r')
  const { running } = await stalled()
  await expire()
  await settled(second, 'r')
  first.origin.commit(filesOf('old', 3))
  await synced(second)
  go.open()
  await running
  // As many points as there are chunks in the records.
  expect(await pointsOf(store)).toHaveLength(5)
  expect(await second.repos.files('r')).toHaveLength(5)
  expect(await synced(second)).toMatchObject({ status: 'completed', rounds: 1 })
  expect(await pointsOf(store)).toEqual(truthOf(filesOf('old', 3)))
  expect(await second.repos.files('r')).toHaveLength(3)
})

test.each([
  ['all of it', false],
  ['its points alone, because its replica ends before the records', true],
])(
  'a late batch of a commit that was force-pushed away, for files that a later sync found unchanged, does not pass as in sync: %s',
  async (_, ends) => {
    const { store, first, second, go, stalled, expire } = paused(2)
    const files = filesOf('good', 5)
    first.origin.commit(files)
    await created(first)
    first.origin.commit(filesOf('bad', 5))
    await first.repos.sync('r')
    const { running } = await stalled()
    await second.repos.cancel('r')
    await expire()
    expect(await settled(second, 'r')).toMatchObject({ status: 'failed' })
    first.origin.commit(files)
    expect(await synced(second)).toMatchObject({ status: 'completed', counters: { unchanged: 5 } })
    const { delete: remove } = store
    if (ends)
      store.delete = async (...args) => {
        store.delete = remove
        await remove.apply(store, args)
        throw new Error('killed')
      }
    go.open()
    await running
    // As many points and records as there must be, all of them of the other commit.
    expect(await pointsOf(store)).toEqual(truthOf(filesOf('bad', 5)))
    expect(await synced(second)).toMatchObject({ status: 'completed', counters: { changed: 5 } })
    expect(await pointsOf(store)).toEqual(truthOf(files))
  },
)

test('a late batch that comes while a later sync works: that sync finds it by itself', async () => {
  const { store, first, second, go, stalled, expire } = paused(2)
  const files = filesOf('good', 5)
  first.origin.commit(files)
  await created(first)
  first.origin.commit(filesOf('bad', 5))
  await first.repos.sync('r')
  const { running } = await stalled()
  await second.repos.cancel('r')
  await expire()
  await settled(second, 'r')
  first.origin.commit({ ...files, more: 'more\n' })
  const { upsert } = second.store
  second.store.upsert = async (...args) => {
    second.store.upsert = upsert
    go.open()
    await running
    return upsert.apply(second.store, args)
  }
  expect(await synced(second)).toMatchObject({ status: 'completed', rounds: 1 })
  expect(await pointsOf(store)).toEqual(truthOf({ ...files, more: 'more\n' }))
})
