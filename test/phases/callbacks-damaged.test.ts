import { describe, expect, jest, test } from '@jest/globals'
import type { BrokenDocument } from '../../src/index.js'
import { listUndelivered, retryCallbacks, showDocument } from '../../src/operations/index.js'
import { eventually } from '../support/database.js'
import { gate, recordingLogger } from '../support/thing.js'
import { jobsWith, removedJob, said, useJobs } from './callbacks-fixture.js'

jest.setTimeout(60_000)

const DUE = { next: 'onMoved', dueAt: new Date(0) }

describe('an outbox that a person has damaged', () => {
  const { database, jobs, stored, insert, prepared } = useJobs()
  const system = () => ({ db: database.db, models: [removedJob.model], doorbell: 'off' as const })

  test.each([
    [{ ...DUE, open: 'x' }],
    [{ ...DUE, open: [5] }],
    [{ ...DUE, open: {} }],
    [{ ...DUE, open: [{ seq: 'x', callback: 'onMoved' }] }],
    [
      {
        ...DUE,
        open: [
          { seq: new Date(), callback: 'onMoved' },
          { seq: 2, callback: 'onMoved' },
        ],
      },
    ],
  ])('%j waits for a person, who is told: it is not taken again and again, nor emptied', async (outbox) => {
    const logger = recordingLogger()
    const { told, lifecycle } = jobsWith(undefined, removedJob)
    const replica = await prepared([lifecycle], { logger })
    await jobs().insertMany([
      { _id: 'bad', phase: 'Done', progress: { outbox } },
      { _id: 'badder', phase: '$removed:job', progress: { outbox } },
    ])
    await insert('good')
    await replica.runOnce()
    await replica.runOnce()
    expect(said(told)).toEqual(['1 onMoved First>Second', '2 onMoved Second>Done'])
    for (const id of ['bad', 'badder']) {
      expect((await stored(id))['progress'].outbox).toMatchObject({ open: outbox.open, tries: 1 })
      const about = logger.lines.filter(({ fields }) => (fields as { id?: string })?.id === id)
      expect(about).toMatchObject([{ level: 'error', message: expect.stringContaining('progress.outbox.open holds') }])
      expect((await showDocument(system(), { id })).explanation).toContain('is damaged: mend progress.outbox by hand')
      const skipped = retryCallbacks(system(), { id }, { skip: true })
      await expect(skipped).rejects.toThrow(`job ${id}: what its callbacks are to be told is damaged; mend`)
    }
    const { undelivered } = await listUndelivered(system())
    const listed = undelivered.map(({ _id, callback, dueAt }) => `${String(_id)} ${callback} ${String(dueAt)}`)
    expect(listed.toSorted()).toEqual(['bad damaged null', 'badder damaged null'])
  })

  test('a removed document that has nothing left to tell is deleted', async () => {
    const { lifecycle } = jobsWith(undefined, removedJob)
    const replica = await prepared([lifecycle])
    await jobs().insertMany([
      { _id: 'a', phase: '$removed:job', progress: { outbox: { ...DUE, open: [] } } },
      { _id: 'b', phase: '$removed:job', progress: { outbox: DUE } },
    ])
    await replica.runOnce()
    expect(await jobs().countDocuments()).toBe(0)
  })
})

describe('a document that refuses to keep the error of its callback', () => {
  const { database, jobs, prepared } = useJobs()

  test('is reported and left alone for a while; what ends with it goes on without a tick', async () => {
    await database.db.createCollection('Job', { validator: { 'progress.outbox.error': { $exists: false } } })
    const both = gate()
    let begun = 0
    const { told, lifecycle } = jobsWith(async ({ id, seq }) => {
      if (seq === 1 && ++begun === 2) both.open()
      await both.wait
      if (id === 'bad') throw new Error('the receiver is away')
    })
    const logger = recordingLogger()
    const broken: BrokenDocument[] = []
    const observer = { broken: (one: BrokenDocument) => void broken.push(one) }
    const replica = await prepared([lifecycle], { logger, observer })
    const entry = (seq: number) => ({ seq, callback: 'onMoved', at: new Date(), from: 'First', to: 'Second' })
    await jobs().insertMany([
      { _id: 'bad', phase: 'Done', progress: { outbox: { ...DUE, seq: 1, open: [entry(1)] } } },
      { _id: 'good', phase: 'Done', progress: { outbox: { ...DUE, seq: 2, open: [entry(1), entry(2)] } } },
    ])
    await replica.tick()
    const called = () => told.map(({ id, seq }) => `${id} ${seq}`).toSorted()
    await eventually(() => expect(called()).toEqual(['bad 1', 'good 1', 'good 2']))
    await replica.idle()
    expect(broken).toMatchObject([{ id: 'bad', reason: 'validator', fate: 'skipped' }])
    expect(replica.status().skipped).toBe(1)
    expect(logger.lines.filter(({ message }) => message.includes('notifying callbacks'))).toEqual([])
  })
})
