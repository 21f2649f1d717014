import { afterEach, expect, test } from '@jest/globals'
import { Unavailable } from 'phaselock'
import { bindLifecycle } from 'phaselock/tasks'
import { syncDefinition } from '../../../packages/repositories/src/sync/definition.js'
import { clientAt } from '../../lock/fixture.js'
import { TcpProxy } from '../../support/tcp-proxy.js'
import { pointsOf, truthOf, useRepositories } from './support.js'

const ends: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})
const { database, world, settled, created, synced } = useRepositories()

const filesOf = (name: string, count = 450) =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`f${i}`, `${name} ${i}\n`]))
const syncs = () => database.db.collection<{ _id: string; next?: number }>('RepositorySync')
const syncOwner = () => {
  const none = async () => undefined as never
  const handlers = { Listing: none, Indexing: none, Removing: none, Checking: none, Cancelling: none }
  return bindLifecycle(syncDefinition().handle(handlers), { db: database.db })
}

/** A sync of `files` that waits in the middle, and another one that has begun after the run of the first was cancelled by a person. */
async function cancelledInTheMiddle(phase: 'Listing' | 'Indexing') {
  const one = world()
  one.origin.commit(filesOf('before', 3))
  await created(one)
  one.origin.commit(filesOf('former'))
  let batches = 0
  one.origin.before = (call) => {
    if (phase === 'Listing' ? call === 'head' : call === 'blobs' && ++batches === 2) throw new Unavailable('away')
  }
  const former = await one.repos.sync('r')
  for (
    let i = 0;
    i < 9 && (await syncs().findOne({ _id: former, lockedBy: { $exists: false } } as object)) === null;
    i += 1
  )
    await one.replica.runOnce()
  for (let i = 0; i < 9 && phase === 'Indexing' && batches < 2; i += 1) await one.replica.runOnce()
  await one.repos.schedules.cancelRun(former, { by: 'anna', reason: 'stuck' })
  for (let i = 0; i < 9 && (await one.repos.schedules.runs('repo_sync_r'))[0]!.phase !== 'Failed'; i += 1)
    await one.replica.runOnce()
  expect((await one.repos.schedules.runs('repo_sync_r'))[0]).toMatchObject({ _id: former, phase: 'Failed' })
  expect((await one.repos.show('r')).text).toBe('parked: cancelled by anna: stuck')
  return { one, former }
}

/** Begins a sync of what was committed, which waits at its second batch. */
async function syncToSecondBatch(one: ReturnType<typeof world>): Promise<string> {
  let batches = 0
  one.origin.before = (call) => {
    if (call === 'blobs' && ++batches === 2) throw new Unavailable('away')
  }
  const sync = await one.repos.sync('r')
  for (let i = 0; i < 9 && batches < 2; i += 1) await one.replica.runOnce()
  return sync
}

test('a sync that was cancelled, and is unparked after another one has begun, writes nothing and ends as Failed', async () => {
  const { one, former } = await cancelledInTheMiddle('Indexing')
  const files = filesOf('latter')
  one.origin.commit(files)
  const latter = await syncToSecondBatch(one)
  one.origin.calls = []
  await syncOwner().unpark(former)
  for (let i = 0; i < 9 && (await syncs().findOne({ _id: former, phase: 'Failed' } as object)) === null; i += 1)
    await one.replica.runOnce()
  expect(await syncs().findOne({ _id: former })).toMatchObject({
    phase: 'Failed',
    error: { message: `the sync ${latter} has begun since` },
  })
  expect(await settled(one, 'r', latter)).toMatchObject({ status: 'completed' })
  expect(await pointsOf(one.store)).toEqual(truthOf(files))
})

test('a sync that was cancelled before it had begun, and is unparked while another one works: one of them writes', async () => {
  const { one, former } = await cancelledInTheMiddle('Listing')
  const files = filesOf('latter')
  one.origin.commit(files)
  const latter = await syncToSecondBatch(one)
  await syncOwner().unpark(former)
  await settled(one, 'r', latter)
  for (
    let i = 0;
    i < 9 && (await syncs().countDocuments({ phase: { $nin: ['Completed', 'Failed'] } } as object)) > 0;
    i += 1
  )
    await one.replica.runOnce()
  const ended = await syncs()
    .find({ _id: { $in: [former, latter] } })
    .toArray()
  expect(ended.map((sync) => (sync as unknown as { phase: string }).phase).sort()).toEqual(['Completed', 'Failed'])
  expect(await pointsOf(one.store)).toEqual(truthOf(files))
})

test('a sync after the clock of the server was set back writes over what was written before', async () => {
  const proxy = await TcpProxy.start(database.uri)
  ends.push(() => proxy.stop())
  const client = await clientAt(proxy.uri)
  ends.push(() => client.close())
  const one = world({ db: client.db(database.db.databaseName) })
  one.origin.commit(filesOf('before', 5))
  await created(one)
  proxy.stepClock(-600_000)
  const files = { ...filesOf('after', 3), more: 'more\n' }
  one.origin.commit(files)
  expect(await synced(one)).toMatchObject({ status: 'completed', counters: { mended: 0 } })
  expect(await pointsOf(one.store)).toEqual(truthOf(files))
  await one.repos.remove('r')
  for (
    let i = 0;
    i < 20 && (await database.db.collection('Repository').countDocuments({ phase: { $ne: 'Deleted' } })) > 0;
    i += 1
  )
    await one.replica.runOnce()
  expect(await pointsOf(one.store)).toEqual([])
})
