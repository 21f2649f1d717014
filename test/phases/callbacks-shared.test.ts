import { describe, expect, jest, test } from '@jest/globals'
import { lifecycleOf, OwnerClient } from '../../src/index.js'
import { type Job, job, jobsWith, said, useJobs } from './callbacks-fixture.js'

jest.setTimeout(60_000)

describe('callbacks of two lifecycles that share a collection', () => {
  const { database, stored, insert, jobs, prepared } = useJobs()

  const errand = lifecycleOf<Job>().define({
    name: 'errand',
    collection: 'Job',
    phases: { Running: { next: ['Back'] }, Back: { rest: true }, Lost: { rest: true } },
    rules: [{ when: 'Deleted', from: ['Back'], moveTo: 'Lost' }],
    callbacks: ['onMoved'],
  })

  test('each is told of its own documents', async () => {
    const heard: unknown[] = []
    const { told, lifecycle } = jobsWith()
    const errands = errand.handle(
      { Running: async (_doc, step) => step.moveTo('Back') },
      { onMoved: ({ id, from, to }) => void heard.push(`${id} ${from}>${to}`) },
    )
    const replica = await prepared([lifecycle, errands])
    await insert('j')
    await database.db.collection('Job').insertOne({ _id: 'e' as never, phase: 'Running' })
    await replica.runOnce()
    await jobs().updateMany({}, { $set: { state: 'Deleted' } })
    await replica.runOnce()
    expect([heard, said(told)]).toEqual([
      ['e Running>Back', 'e Back>Lost'],
      ['1 onMoved First>Second', '2 onMoved Second>Done', '3 onMoved Done>Gone'],
    ])
    expect((await stored('e'))['progress'].outbox).toEqual({ seq: 2 })
  })
})

describe('callbacks of a document that is paused', () => {
  const { database, stored, insert, prepared } = useJobs()

  test.each([{ id: 'j' }, {}])('are told: a pause (%j) holds back steps only', async (target) => {
    let broken = true
    const { told, lifecycle } = jobsWith(() => {
      if (broken) throw new Error('the shop is away')
    })
    const replica = await prepared([lifecycle])
    await insert()
    await replica.runOnce()
    expect(said(told)).toEqual(['1 onMoved First>Second'])
    await new OwnerClient<Job>(database.db, job.model).pause({ ...target, by: 'ana' } as never)
    broken = false
    await database.db.collection('Job').updateMany({}, { $set: { 'progress.outbox.dueAt': new Date(0) } })
    await replica.runOnce()
    await replica.runOnce()
    expect((await stored())['progress'].outbox).toEqual({ seq: 2 })
  })
})
