import { expect, test } from '@jest/globals'
import { chunksOf, memory } from 'phaselock-repositories'
import { gate } from '../../support/thing.js'
import { countingEmbeddings, pointsOf, sha1, useRepositories } from './support.js'

const { database, world, settled, created, synced } = useRepositories()

const SIZE = { characters: 100, overlap: 20 }
const truth = (files: Readonly<Record<string, string>>) =>
  Object.entries(files)
    .flatMap(([path, text]) =>
      chunksOf(text, SIZE).map(
        ({ lines, text: part }) => `${path}:${lines.from}-${lines.to} ${sha1(part).slice(0, 8)}`,
      ),
    )
    .sort()
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
  return { store, first, second, began, go, expire, model }
}

test('a replica that was paused past its lease: another one goes on at its batch, and its late writes change nothing', async () => {
  const { store, first, second, began, go, expire } = paused(2)
  const files = filesOf('text')
  first.origin.commit(files)
  await first.repos.create('r', { url: 'https://git.example/a', collection: 'code' })
  // The first sync begins after some ticks, which the paused step doesn't let end.
  const running = (async () => {
    for (let i = 0; i < 5; i += 1) await first.replica.runOnce()
  })()
  await began.wait
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
  expect(await pointsOf(store)).toEqual(truth(files))
  expect(await second.repos.files('r')).toEqual(records)
  expect(await syncs().findOne({})).toMatchObject({ phase: 'Completed', filesIndexed: 450 })
})

test('what a paused replica adds anew after a later commit was synced, the next Checking removes', async () => {
  const { store, first, second, began, go, expire } = paused(2)
  first.origin.commit(filesOf('old', 10))
  await created(first)
  const middle = filesOf('middle', 10)
  first.origin.commit(middle)
  await first.repos.sync('r')
  const running = (async () => {
    for (let i = 0; i < 5; i += 1) await first.replica.runOnce()
  })()
  // The second call of the model: that of the commit in the middle.
  await Promise.race([began.wait, running])
  await expire()
  await settled(second, 'r')
  const files = { ...filesOf('new', 5), more: 'more\n' }
  first.origin.commit(files)
  await synced(second)
  expect(await pointsOf(store)).toEqual(truth(files))
  go.open()
  await running
  // Five files have a point too many; five that are gone have points and records again.
  expect((await second.repos.files('r')).length).toBe(11)
  expect(await synced(second)).toMatchObject({ status: 'completed', counters: { mended: 5, deleted: 0 } })
  expect(await pointsOf(store)).toEqual(truth(files))
  expect((await second.repos.files('r')).map(({ path }) => path)).toEqual(['f0', 'f1', 'f2', 'f3', 'f4', 'more'])
})

test('points and records of files that are gone, written by a replica that was paused, do not pass as in sync', async () => {
  const { store, first, second, began, go, expire } = paused(2)
  first.origin.commit(filesOf('old', 3))
  await created(first)
  first.origin.commit({ ...filesOf('old', 3), late1: 'late 1\n', late2: 'late 2\n' })
  await first.repos.sync('r')
  const running = (async () => {
    for (let i = 0; i < 5; i += 1) await first.replica.runOnce()
  })()
  await Promise.race([began.wait, running])
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
  expect(await pointsOf(store)).toEqual(truth(filesOf('old', 3)))
  expect(await second.repos.files('r')).toHaveLength(3)
})
