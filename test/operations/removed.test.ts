import { describe, expect, jest, test } from '@jest/globals'
import { Audit, lifecycleOf, Replica, silentLogger } from '../../src/index.js'
import {
  beginOperation,
  checkDatabase,
  countPhases,
  listDocuments,
  listUndelivered,
  operationLifecycle,
  operationNamed,
  registeredLifecycles,
  removeDocument,
  retryCallbacks,
  type System,
  setState,
  showDocument,
  wakeDocument,
} from '../../src/operations/index.js'
import { type Job, jobSpec, jobsWith, removedJob, said, useJobs } from '../phases/callbacks-fixture.js'

jest.setTimeout(60_000)

describe('removals by people, of a lifecycle with onRemoved', () => {
  const { database, jobs, stored, insert, prepared, pass } = useJobs()
  const system = (): System => ({
    ...{ db: database.db, models: [removedJob.model], doorbell: 'off' },
    audit: { by: 'ana', reason: 'a test' },
  })
  const begun = async (isAway = () => false) => {
    const { told, lifecycle } = jobsWith(() => {
      if (isAway()) throw new Error('away')
    }, removedJob)
    return { told, replica: await prepared([lifecycle]) }
  }

  test('remove: it is told, unless it is held; with force even then', async () => {
    const { told, replica } = await begun()
    await insert()
    await jobs().updateOne({ _id: 'j' }, { $set: { lockedBy: 'other~1#1.1', lockedAt: new Date() } })
    await expect(removeDocument(system(), { id: 'j' })).rejects.toMatchObject({ obstacle: { reason: 'held' } })
    expect(await stored()).toMatchObject({ phase: 'First', lockedBy: 'other~1#1.1' })
    const removed = await removeDocument(system(), { id: 'j' }, { force: true })
    expect(removed).toEqual({ lifecycle: 'job', _id: 'j', deleted: false })
    await replica.runOnce()
    expect(said(told)).toEqual(['1 onRemoved First>First'])
    expect(told[0]).toMatchObject({ by: 'ana', reason: 'a test' })
    expect(await stored()).toBeNull()
    const { entries } = { entries: await new Audit(database.db).list({ documents: ['j'] }) }
    expect(entries.map(({ action, outcome }) => `${action} ${outcome}`)).toEqual(['remove done', 'remove refused'])
  })

  test('one that is removed and not yet told is shown, counted and listed so, and takes nothing but its calls', async () => {
    let isAway = true
    const { told, replica } = await begun(() => isAway)
    await insert()
    await removeDocument(system(), { id: 'j' })
    for (let i = 0; i < 4; i += 1) {
      await replica.runOnce()
      await pass(60_000)
    }
    const { condition, explanation, why } = await showDocument(system(), { id: 'j' })
    expect(condition).toMatchObject({ kind: 'removed', from: 'First', at: expect.any(Date) })
    expect(why).toBeUndefined()
    expect(explanation).toMatch(
      /^Removed from First .+ ago: it is deleted when its callbacks have been told, and nothing revives it until then\. A call of its callbacks is to come: onRemoved in First, tried 3 times: 'away'; it waits for a person/,
    )
    expect((await countPhases(system(), { fresh: true })).at(-1)).toMatchObject({
      ...{ phase: '(removed)', kind: 'removed', documents: { n: 1 } },
    })
    expect((await listDocuments(system())).documents).toMatchObject([{ condition: { kind: 'removed' } }])
    expect((await listUndelivered(system())).undelivered).toMatchObject([
      { callback: 'onRemoved', from: 'First', dueAt: null },
    ])
    const phases = (await checkDatabase(system())).find(({ check }) => check === 'phases')
    expect(phases!.findings).toEqual([])
    for (const act of [
      setState(system(), { id: 'j' }, 'Deleted'),
      wakeDocument(system(), { id: 'j' }),
      removeDocument(system(), { id: 'j' }, { force: true }),
    ])
      await expect(act).rejects.toMatchObject({ obstacle: { reason: 'removed', id: 'j' } })
    isAway = false
    expect(await retryCallbacks(system(), { id: 'j' })).toMatchObject({ callback: 'onRemoved', skipped: false })
    await replica.runOnce()
    expect(told).toHaveLength(4)
    expect(await stored()).toBeNull()
  })

  test('skip gives the call up, and the document goes', async () => {
    const { told, replica } = await begun(() => true)
    await insert()
    await removeDocument(system(), { id: 'j' })
    await replica.runOnce()
    expect(await retryCallbacks(system(), { id: 'j' }, { skip: true })).toMatchObject({ skipped: true })
    expect(await stored()).toBeNull()
    expect(told).toHaveLength(1)
  })

  test('skip leaves alone what somebody has given another phase since', async () => {
    await begun(() => true)
    await insert()
    await removeDocument(system(), { id: 'j' })
    await jobs().updateOne({ _id: 'j' }, { $set: { phase: 'Done' } })
    await retryCallbacks(system(), { id: 'j' }, { skip: true })
    expect(await stored()).toMatchObject({ phase: 'Done', progress: { outbox: { seq: 1 } } })
  })

  test('an operation: each is told; one that was killed in between does nothing twice', async () => {
    const { told, replica } = await begun()
    for (const id of ['a', 'b', 'c']) await insert(id)
    await jobs().updateOne({ _id: 'c' }, { $set: { lockedBy: 'other~1#1.1', lockedAt: new Date() } })
    const request = { action: 'remove', selection: { lifecycle: 'job', all: true }, by: 'ana', rate: 100_000 } as const
    const { _id } = await beginOperation(system(), request)
    const worker = new Replica({
      ...{ db: database.db, lifecycles: [operationLifecycle({ db: database.db })], logger: silentLogger },
    })
    await worker.runOnce()
    expect(await operationNamed(system(), _id)).toMatchObject({ counts: { seen: 3, done: 2, skipped: 1 } })
    expect(await stored('a')).toMatchObject({ phase: '$removed:job' })
    const page = { page: { ids: ['a', 'b'] }, phase: 'Running', lockedAt: new Date(0) }
    await database.db.collection('phaselock.operations').updateOne({ _id: _id as never }, { $set: page })
    await worker.runOnce()
    await worker.stop()
    expect((await stored('a'))['progress'].outbox.open).toHaveLength(1)
    await replica.runOnce()
    expect(said(told)).toEqual(['1 onRemoved First>First', '1 onRemoved First>First'])
    expect(told[0]).toMatchObject({ by: 'ana', reason: `removed (${_id})` })
    expect(await jobs().distinct('_id')).toEqual(['c'])
  })

  test('check finds what is removed of a lifecycle that has no callbacks any more', async () => {
    await jobs().insertMany([
      { _id: 'a', phase: '$removed:job' },
      { _id: 'b', phase: '$removed:gone' },
    ])
    const phases = (await checkDatabase(system())).find(({ check }) => check === 'phases')
    expect(phases!.findings).toMatchObject([
      {
        problem: expect.stringContaining(
          '1 document removed ($removed:gone), and no lifecycle of that name has callbacks',
        ),
        advice: expect.stringContaining(`deleteMany({"phase":"$removed:gone"})`),
      },
    ])
  })

  test('of a lifecycle that has lost its callbacks nobody is told: check finds what is removed, and what is untold goes with its document', async () => {
    const { replica } = await begun(() => true)
    await insert('a')
    await insert('b')
    await replica.runOnce()
    await removeDocument(system(), { id: 'a' }, { force: true })
    await replica.stop()
    const bare = lifecycleOf<Job>().define(jobSpec)
    const handlers = {
      First: async (_doc: Job, step: typeof bare.$step.First) => step.moveTo('Second'),
      Second: async (_doc: Job, step: typeof bare.$step.Second) => step.moveTo('Done'),
    }
    await (await prepared([bare.handle(handlers)])).stop()
    const now: System = { ...system(), models: (await registeredLifecycles(database.db, '')).map(({ model }) => model) }
    const phases = (await checkDatabase(now)).find(({ check }) => check === 'phases')
    expect(phases!.findings).toMatchObject([{ problem: expect.stringContaining('1 document removed ($removed:job)') }])
    expect(await removeDocument(now, { id: 'b' }, { force: true })).toEqual({ lifecycle: 'job', _id: 'b' })
  })

  test('in a collection with another lifecycle each tells its own', async () => {
    const errand = lifecycleOf<Job>().define({
      ...{ name: 'errand', collection: 'Job', callbacks: ['onRemoved'] },
      phases: { Running: { next: ['Back'] }, Back: { rest: true } },
    })
    const heard: string[] = []
    const errands = errand.handle(
      { Running: async (_doc, step) => step.moveTo('Back') },
      { onRemoved: ({ id, from }) => void heard.push(`${id} ${from}`) },
    )
    const { told, lifecycle } = jobsWith(undefined, removedJob)
    const replica = await prepared([lifecycle, errands])
    await insert()
    await jobs().insertOne({ _id: 'e', phase: 'Running' })
    await replica.runOnce()
    const both = { ...system(), models: [removedJob.model, errand.model] }
    await removeDocument(both, { id: 'e', lifecycle: 'errand' })
    await removeDocument(both, { id: 'j', lifecycle: 'job' })
    expect((await listUndelivered(both)).undelivered.map(({ lifecycle, _id }) => `${lifecycle} ${_id}`).sort()).toEqual(
      ['errand e', 'job j'],
    )
    await replica.runOnce()
    expect([heard, said(told).at(-1)]).toEqual([['e Back'], '3 onRemoved Done>Done'])
    expect(await jobs().countDocuments()).toBe(0)
  })
})
