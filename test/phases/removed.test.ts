import { describe, expect, jest, test } from '@jest/globals'
import { DocumentExists, OwnerClient } from '../../src/index.js'
import { type Job, jobsWith, removedJob, said, useJobs } from './callbacks-fixture.js'

jest.setTimeout(60_000)

describe('onRemoved', () => {
  const { database, jobs, stored, insert, prepared, pass, calls } = useJobs()
  const owner = (lifecycle = removedJob) => new OwnerClient<Job>(database.db, lifecycle.model, { doorbell: 'off' })
  const of = (told: readonly { id: string }[], id = 'j') => said(told.filter((one) => one.id === id) as never)

  test('is told of what a final phase ends, after all else, while the document is there, which goes then', async () => {
    const there: unknown[] = []
    const { told, lifecycle } = jobsWith(async ({ id, callback }) => {
      if (callback === 'onRemoved') there.push((await stored(id))['phase'])
    }, removedJob)
    const replica = await prepared([lifecycle])
    await insert()
    await replica.runOnce()
    await jobs().updateOne({ _id: 'j' }, { $set: { state: 'Deleted' } })
    await replica.runOnce()
    expect(of(told)).toEqual([
      ...['1 onMoved First>Second', '2 onMoved Second>Done', '3 onMoved Done>Gone'],
      '4 onRemoved Gone>Gone',
    ])
    expect(told[3]).toMatchObject({
      ...{ lifecycle: 'job', id: 'j', outcome: 'remove', reason: 'final', by: 'rule', step: null, attempt: 1 },
      document: { _id: 'j', phase: 'Gone', state: 'Deleted' },
    })
    expect(there).toEqual(['$removed:job'])
    expect(await stored()).toBeNull()
    expect(calls.at(-1)).toMatchObject({ callback: 'onRemoved', outcome: 'told' })
  })

  test('is told of what its owner removes, from whatever phase, also while a step runs, whose outcome is dropped', async () => {
    const { told, lifecycle } = jobsWith(undefined, removedJob)
    const replica = await prepared([lifecycle])
    await insert()
    await insert('held')
    const held = { lockedBy: 'other~1#1.1', lockedAt: new Date(), fence: 1, progress: { claims: 1 } }
    await jobs().updateOne({ _id: 'held' }, { $set: held })
    expect(await owner().remove('j', { audit: { by: 'ana', reason: 'a twin' } })).toBe('done')
    expect(await owner().remove('held')).toBe('done')
    expect(await stored('held')).not.toHaveProperty('lockedBy')
    expect(await owner().remove('j')).toBe('notFound') // it is removed already
    await replica.runOnce()
    expect(of(told)).toEqual(['1 onRemoved First>First'])
    expect(of(told, 'held')).toEqual(['1 onRemoved First>First'])
    expect(told.find(({ id }) => id === 'j')).toMatchObject({
      by: 'ana',
      reason: 'a twin',
      document: { phase: 'First' },
    })
    expect(await jobs().countDocuments()).toBe(0)
    expect(await owner().remove('j')).toBe('notFound')
  })

  test('one that fails is called again, then waits for a person; the document stays, and nothing revives it', async () => {
    let isAway = true
    const { told, lifecycle } = jobsWith(({ callback }) => {
      if (isAway && callback === 'onRemoved') throw new Error('away')
    }, removedJob)
    const replica = await prepared([lifecycle])
    await insert()
    await replica.runOnce()
    await owner().remove('j')
    for (let i = 0; i < 5; i += 1) {
      await replica.runOnce()
      await pass(60_000)
    }
    expect(of(told).slice(2)).toEqual(Array(3).fill('3 onRemoved Done>Done'))
    const outbox = { next: 'onRemoved', tries: 3, error: 'away', open: [{ seq: 3 }] }
    expect(await stored()).toMatchObject({ phase: '$removed:job', progress: { outbox } })
    expect(await owner().setState('j', 'Deleted')).toBe('notFound')
    expect(await owner().wake('j')).toBe('notFound')
    expect(await owner().unpark('j')).toBe('notFound')
    await expect(owner().insert({ _id: 'j' })).rejects.toBeInstanceOf(DocumentExists)
    for (const onDuplicate of ['ignore', 'wake', 'replaceWaiting', 'runAgain'] as const)
      await expect(owner().insert({ _id: 'j', fails: true }, { onDuplicate })).rejects.toMatchObject({
        name: 'DocumentExists',
        message:
          'job j was not inserted: it is removed, and deleted when its callbacks have been told: insert it again then',
      })
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: '$removed:job', progress: { outbox } })
    expect(await stored()).not.toHaveProperty('fails')
    isAway = false
    await jobs().updateOne({ _id: 'j' }, { $set: { 'progress.outbox.dueAt': new Date(0), 'progress.outbox.tries': 0 } })
    await replica.runOnce()
    expect(await stored()).toBeNull()
  })

  test('a callback that is untold when its document is removed is told before; the removal goes on while it is told', async () => {
    const owners = owner()
    const { told, lifecycle } = jobsWith(async ({ id, seq }) => {
      if (seq === 2) await owners.remove(id)
    }, removedJob)
    const replica = await prepared([lifecycle])
    await insert()
    await replica.runOnce()
    expect(of(told)).toEqual(['1 onMoved First>Second', '2 onMoved Second>Done', '3 onRemoved Done>Done'])
    expect(await stored()).toBeNull()
  })

  test('without onRemoved, what a removed document has not told is told before it goes; one with nothing to tell goes at once', async () => {
    let isAway = true
    const plain = jobsWith(() => {
      if (isAway) throw new Error('away')
    })
    const replica = await prepared([plain.lifecycle])
    await insert()
    await replica.runOnce()
    expect(await owner(plain.lifecycle as never).remove('j')).toBe('done')
    expect(await stored()).toMatchObject({
      phase: '$removed:job',
      progress: { outbox: { open: [{ seq: 1 }, { seq: 2 }, { seq: 3, callback: 'delete' }] } },
    })
    isAway = false
    await pass(60_000)
    await replica.runOnce()
    expect(of(plain.told).slice(1)).toEqual(['1 onMoved First>Second', '2 onMoved Second>Done'])
    expect(plain.told.at(-1)!.document).toMatchObject({ phase: 'Done' })
    expect(await stored()).toBeNull()
    await insert('other')
    await replica.runOnce()
    await owner(plain.lifecycle as never).remove('other')
    expect(await stored('other')).toBeNull()
  })

  test('what a crash left behind is told by another replica, and one that was told but not deleted once more', async () => {
    const { lifecycle } = jobsWith(undefined, removedJob)
    const first = await prepared([lifecycle])
    await insert()
    await first.runOnce()
    await owner().remove('j')
    const dying = { 'progress.outbox.by': 'dead!1', 'progress.outbox.tries': 1 }
    await jobs().updateOne({ _id: 'j' }, { $set: { ...dying, 'progress.outbox.dueAt': new Date(Date.now() + 5_000) } })
    const { told, lifecycle: own } = jobsWith(undefined, removedJob)
    const second = await prepared([own])
    await second.runOnce()
    expect(told).toEqual([])
    await pass(10_000)
    await second.runOnce()
    expect(told).toMatchObject([{ seq: 3, callback: 'onRemoved', attempt: 2 }])
    expect(await stored()).toBeNull()
  })

  test('a replica without onRemoved leaves it to others, and deletes at once what its own rules end', async () => {
    const older = jobsWith()
    const fresh = jobsWith(undefined, removedJob)
    const replica = await prepared([fresh.lifecycle])
    const old = await prepared([older.lifecycle])
    await insert()
    await old.runOnce()
    await owner().remove('j')
    await old.runOnce()
    expect(await stored()).toMatchObject({ phase: '$removed:job', progress: { outbox: { next: 'onRemoved' } } })
    await replica.runOnce()
    expect(of(fresh.told)).toEqual(['3 onRemoved Done>Done'])
    expect(await stored()).toBeNull()
    await insert('k')
    await old.runOnce()
    await jobs().updateOne({ _id: 'k' }, { $set: { state: 'Deleted' } })
    await old.runOnce()
    await pass(10_000)
    await old.runOnce()
    expect(await stored('k')).toBeNull()
  })

  test('is never told of a document that somebody has given another phase since: that waits for a person', async () => {
    const { told, lifecycle } = jobsWith(undefined, removedJob)
    const replica = await prepared([lifecycle])
    await insert()
    await replica.runOnce()
    await owner().remove('j')
    await jobs().updateOne({ _id: 'j' }, { $set: { phase: 'Done' } })
    await replica.runOnce()
    expect(of(told)).toHaveLength(2)
    expect(await stored()).toMatchObject({
      phase: 'Done',
      progress: { outbox: { error: expect.stringContaining('somebody has given it another phase') } },
    })
  })

  test('one that refuses the write of its removal stays, and the others go', async () => {
    const { told, lifecycle } = jobsWith(undefined, removedJob)
    const replica = await prepared([lifecycle])
    await insert()
    await insert('fine')
    await replica.runOnce()
    await jobs().insertOne({ _id: 'other', phase: '$removed:job', place: 1 })
    await jobs().updateMany({ _id: 'j' }, { $set: { place: 1 } })
    await jobs().createIndex({ phase: 1, place: 1 }, { unique: true })
    await jobs().updateMany({}, { $set: { state: 'Deleted' } })
    await replica.runOnce()
    expect(await stored('fine')).toBeNull()
    expect(await stored()).toMatchObject({ phase: 'Gone' })
    expect(of(told).at(-1)).toBe('3 onMoved Done>Gone')
    await expect(owner().remove('j')).rejects.toMatchObject({ code: 11_000 })
  })
})
