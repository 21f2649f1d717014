import { describe, expect, jest, test } from '@jest/globals'
import { DocumentExists, lifecycleOf } from '../../src/index.js'
import { sleep } from '../../src/time/index.js'
import { clientAt } from '../lock/fixture.js'
import { eventually } from '../support/database.js'
import { gate } from '../support/thing.js'
import { type Job, type job, jobSpec, jobsWith, useJobs } from './callbacks-fixture.js'

jest.setTimeout(60_000)

const declared = (more = {}) =>
  lifecycleOf<Job>().define({
    ...{ ...jobSpec, callbacks: ['onMoved', 'onRemoved'], callbackTimeout: '10m', ...more },
  } as never) as unknown as typeof job

const entry = {
  ...{ seq: 1, callback: 'onMoved', at: new Date(), from: 'Second', to: 'Done' },
  ...{ step: null, outcome: 'moveTo', reason: null, by: 'x' },
}

/** Documents of which something has been due for long, the first of them for longest. */
const dueOnes = (name: string, count: number, outbox = {}) =>
  Array.from({ length: count }, (_, i) => ({
    ...{ _id: `${name}${i}`, phase: 'Done' },
    progress: {
      outbox: { seq: 1, open: [entry], next: 'onMoved', dueAt: new Date(Date.now() - 60_000 + i), ...outbox },
    },
  }))

describe('callbacks that hang', () => {
  const { database, jobs, insert, prepared } = useJobs()

  /** What hangs never returns, as long as the test goes on. */
  function hanging(lifecycle = declared()) {
    const end = gate()
    const hung: AbortSignal[] = []
    const told: string[] = []
    const seen = { now: 0, most: 0 }
    const { lifecycle: own } = jobsWith(async ({ id }, { signal }) => {
      seen.now += 1
      seen.most = Math.max(seen.most, seen.now)
      if (id.startsWith('hangs')) {
        hung.push(signal)
        await end.wait
      } else told.push(id)
      seen.now -= 1
    }, lifecycle)
    const noneEnded = () => hung.every(({ aborted }) => !aborted)
    return { lifecycle: own, told, hung, seen, noneEnded, end: end.open }
  }

  test.each([64, 1_000])(
    '%i keep no other waiting: those that are due after them, and those that are stored meanwhile',
    async (count) => {
      const { lifecycle, told, hung, noneEnded, end } = hanging()
      const replica = await prepared([lifecycle])
      await jobs().insertMany([...dueOnes('hangs', count), ...dueOnes('good', 100, { dueAt: new Date() })])
      await replica.tick()
      await eventually(() => expect(told).toHaveLength(100))
      await insert('later')
      await replica.tick()
      await eventually(() => expect(told.filter((id) => id === 'later')).toHaveLength(2))
      expect(hung).toHaveLength(count)
      expect(noneEnded()).toBe(true)
      end()
      await replica.idle()
      expect(await jobs().countDocuments({ 'progress.outbox.open': { $exists: true } })).toBe(0)
    },
  )

  test('of more than 1,500 the rest is left to other replicas, with what comes after them', async () => {
    const { lifecycle, told, hung, seen, end } = hanging()
    const most = 1_500 + 32
    const one = await prepared([lifecycle])
    await jobs().insertMany(dueOnes('hangs', most + 10))
    await one.tick()
    await eventually(() => expect(hung).toHaveLength(most))
    await eventually(async () =>
      expect(await jobs().countDocuments({ 'progress.outbox.by': { $exists: true } })).toBe(most),
    )
    await jobs().insertMany(dueOnes('good', 10))
    await one.tick()
    const other = hanging()
    const second = await prepared([other.lifecycle])
    await second.tick()
    await eventually(() => expect([other.told.length, other.hung.length]).toEqual([10, 10]))
    expect(seen.most).toBe(most)
    expect(told).toEqual([])
    other.end()
    end()
    await Promise.all([one.idle(), second.idle()])
  })

  test('a first try never waits behind those that have failed before', async () => {
    const { lifecycle, told, noneEnded, end } = hanging(declared({ concurrency: 2 }))
    const replica = await prepared([lifecycle])
    await jobs().insertMany([
      ...dueOnes('hangs', 200, { tries: 1, error: 'no answer' }),
      ...dueOnes('again', 1, { tries: 1, error: 'no answer', dueAt: new Date() }),
      ...dueOnes('good', 20, { dueAt: new Date() }),
    ])
    await replica.tick()
    await eventually(() => expect(told.filter((id) => id.startsWith('good'))).toHaveLength(20))
    await eventually(() => expect(told).toContain('again0'))
    expect(noneEnded()).toBe(true)
    end()
    await replica.idle()
  })

  test('those that a dead process was about to tell keep no other of its documents waiting', async () => {
    const { lifecycle, told, noneEnded, end } = hanging(declared({ concurrency: 2 }))
    const replica = await prepared([lifecycle])
    await jobs().insertMany([
      ...dueOnes('hangs', 4, { tries: 1, by: 'dead!1' }),
      ...dueOnes('good', 2, { tries: 1, by: 'dead!1', dueAt: new Date() }),
    ])
    await replica.tick()
    await eventually(async () => {
      await replica.tick()
      expect(told).toHaveLength(2)
    })
    expect(noneEnded()).toBe(true)
    end()
    await replica.idle()
  })

  test('33 that a dead process was about to tell keep a good one waiting for no further tick', async () => {
    const { lifecycle, told, hung, noneEnded, end } = hanging()
    const replica = await prepared([lifecycle])
    await jobs().insertMany([
      ...dueOnes('hangs', 33, { tries: 1, by: 'dead!1' }),
      ...dueOnes('good', 1, { tries: 1, by: 'dead!1', dueAt: new Date() }),
    ])
    await replica.tick()
    await eventually(() => expect(told).toEqual(['good0']))
    expect(hung).toHaveLength(33)
    expect(noneEnded()).toBe(true)
    end()
    await replica.idle()
  })

  test('ten on their last try begin alone, one after the other, without a further tick', async () => {
    const seen = { now: 0, most: 0, ended: 0 }
    const { lifecycle } = jobsWith(async () => {
      seen.now += 1
      seen.most = Math.max(seen.most, seen.now)
      await sleep(50)
      seen.now -= 1
      seen.ended += 1
    }, declared())
    const replica = await prepared([lifecycle])
    await jobs().insertMany(dueOnes('last', 10, { tries: 2, by: 'dead!1' }))
    await replica.tick()
    await eventually(() => expect(seen).toEqual({ now: 0, most: 1, ended: 10 }))
  })

  test('a removed document gives its _id back without them', async () => {
    const { lifecycle, told, noneEnded, end } = hanging()
    const replica = await prepared([lifecycle])
    await jobs().insertMany(dueOnes('hangs', 100))
    await replica.tick()
    await insert('j', { phase: 'Done' } as never)
    await expect(lifecycle.remove('j')).resolves.toBe('done')
    await expect(lifecycle.insert({ _id: 'j' })).rejects.toBeInstanceOf(DocumentExists)
    await replica.tick()
    await eventually(() => expect(told).toEqual(['j']))
    await eventually(() => lifecycle.insert({ _id: 'j' }).then(() => true))
    expect(noneEnded()).toBe(true)
    end()
    await replica.idle()
  })

  test('when the replica stops they are let go together, and count no try', async () => {
    const client = await clientAt(database.uri, { monitorCommands: true })
    const { lifecycle, hung } = hanging()
    const replica = await prepared([lifecycle], { db: client.db(database.db.databaseName), grace: '1ms' })
    await jobs().insertMany(dueOnes('hangs', 300))
    await replica.tick()
    await eventually(() => expect(hung).toHaveLength(300))
    let updates = 0
    client.on('commandStarted', ({ commandName }) => {
      if (commandName === 'update') updates += 1
    })
    await replica.stop()
    expect(hung.every(({ aborted }) => aborted)).toBe(true)
    await eventually(async () => {
      expect(await jobs().countDocuments({ 'progress.outbox.by': { $exists: true } })).toBe(0)
    })
    expect(await jobs().countDocuments({ 'progress.outbox.tries': { $gt: 0 } })).toBe(0)
    expect(updates).toBeLessThan(20)
    await client.close()
  })
})
